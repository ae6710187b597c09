"""Reads Envoy's usage reports and writes assignments (envoy.service.rate_limit_quota.v3).

::

    RateLimitQuotaUsageReports   1 domain  2 bucket_quota_usages...
    BucketQuotaUsage             1 bucket_id  2 time_elapsed  3 allowed  4 denied
    BucketId                     1 bucket..., a map: 1 key  2 value
    RateLimitQuotaResponse       1 bucket_action...
    BucketAction                 1 bucket_id  2 quota_assignment_action  3 abandon_action
    QuotaAssignmentAction        2 assignment_time_to_live  3 rate_limit_strategy
    RateLimitStrategy            1 blanket_rule  3 token_bucket
    TokenBucket                  1 max_tokens  2 tokens_per_fill  3 fill_interval

``time_elapsed`` is skipped: Envoy cuts it to whole seconds, and the first report has none.

Only what real Envoys handle well can be written. Every assignment has a time to live of whole
seconds, as Envoy lets one without expire at once. Every bucket has all three fields, with an
interval of whole seconds: Envoy takes one below a second for unlimited.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.service.envoy_constants import DEEPEST, U32, U64
from penstock.service.grpc_status import GrpcError
from penstock.service.rls_request import Reader
from penstock.service.rls_response import varint_of

Pairs = tuple[tuple[str, str], ...]

ALLOW_ALL = 0
DENY_ALL = 1

# In one report, and in all of its buckets. A report of 10,000 buckets has about 400 kB.
MOST_BUCKETS = 100_000
MOST_PAIRS = 1_000_000


class Usage(NamedTuple):
    """What one bucket has seen since the last report. ``pairs`` are sorted."""

    pairs: Pairs
    requests: int


class Reports(NamedTuple):
    domain: str
    usages: list[Usage]


class Blanket(NamedTuple):
    """Allow or deny everything: ALLOW_ALL or DENY_ALL."""

    rule: int


class Tokens(NamedTuple):
    """A token bucket: its size, and how much it gets in ``interval`` seconds."""

    most: int
    fill: int
    interval: int


class Abandon(NamedTuple):
    """Forget the bucket until its next request."""


Action = Blanket | Tokens | Abandon


# Reading --------------------------------------------------------------------------------


def read_reports(data: bytes) -> Reports:
    """From bytes; `ValueError` if they are not such a message."""
    try:
        return _read_reports(Reader(data))
    except GrpcError as error:
        raise _malformed(error.message.partition(": ")[2]) from None


def _read_reports(reader: Reader) -> Reports:
    domain, usages, pairs = "", [], 0
    while reader.at < reader.end:
        tag = reader.tag()
        if tag == 10:
            domain = reader.text()
        elif tag == 18:
            usage = _read_usage(reader)
            usages.append(usage)
            pairs += len(usage.pairs)
            if len(usages) > MOST_BUCKETS or pairs > MOST_PAIRS:
                raise _malformed(f"it has more than {MOST_BUCKETS} buckets or {MOST_PAIRS} pairs")
        else:
            reader.skip(tag, DEEPEST)
    return Reports(domain, usages)


def _read_usage(reader: Reader) -> Usage:
    bucket: dict[str, str] = {}
    allowed = denied = 0
    outer = reader.enter()
    while reader.at < reader.end:
        tag = reader.tag()
        if tag == 10:
            _read_bucket(reader, bucket)
        elif tag == 24:
            allowed = reader.varint(10)
        elif tag == 32:
            denied = reader.varint(10)
        else:
            reader.skip(tag, DEEPEST - 1)
    reader.end = outer
    return Usage(tuple(sorted(bucket.items())), min(allowed + denied, U64))


def _read_bucket(reader: Reader, bucket: dict[str, str]) -> None:
    outer = reader.enter()
    while reader.at < reader.end:
        tag = reader.tag()
        if tag == 10:
            key, value = _read_pair(reader)
            bucket[key] = value
        else:
            reader.skip(tag, DEEPEST - 2)
    reader.end = outer


def _read_pair(reader: Reader) -> tuple[str, str]:
    key = value = ""
    outer = reader.enter()
    while reader.at < reader.end:
        tag = reader.tag()
        if tag == 10:
            key = reader.text()
        elif tag == 18:
            value = reader.text()
        else:
            reader.skip(tag, DEEPEST - 3)
    reader.end = outer
    return key, value


def _malformed(why: str) -> ValueError:
    return ValueError(f"this is no RateLimitQuotaUsageReports: {why}")


# Writing --------------------------------------------------------------------------------


def bucket_id(pairs: Pairs) -> bytes:
    """The field ``bucket_id`` of an action."""
    return _field(10, b"".join([_field(10, _pair(*pair)) for pair in pairs]))


def write_action(bucket: bytes, action: Action, ttl: int) -> bytes:
    """One ``bucket_action`` of a response, which consists of nothing else.

    ``bucket`` is from `bucket_id`, and ``ttl`` in whole seconds.
    """
    if isinstance(action, Abandon):
        return _field(10, bucket + b"\x1a\x00")
    if ttl < 1:
        raise ValueError(f"Envoy lets an assignment of {ttl} s expire at once: 1 is the least")
    strategy = (
        b"\x08" + varint_of(action.rule)
        if isinstance(action, Blanket)
        else _field(26, _token_bucket(action))
    )
    assignment = _field(18, _number(8, ttl)) + _field(26, strategy)
    return _field(10, bucket + _field(18, assignment))


def _token_bucket(tokens: Tokens) -> bytes:
    if not (0 < tokens.most <= U32 and 0 < tokens.fill <= U32 and tokens.interval >= 1):
        raise ValueError(f"Envoy does not handle {tokens}: its counts are from 1 to {U32}")
    return (
        _number(8, tokens.most)
        + _field(18, _number(8, tokens.fill))
        + _field(26, _number(8, tokens.interval))
    )


def _pair(key: str, value: str) -> bytes:
    return _field(10, key.encode()) + _field(18, value.encode())


def _number(tag: int, number: int) -> bytes:
    return bytes([tag]) + varint_of(number)


def _field(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + varint_of(len(content)) + content
