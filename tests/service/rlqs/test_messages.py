"""Envoy's messages, compared with the classes that protoc generates."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.rate_limit_quota.v3 import rlqs_pb2
from envoy.type.v3.ratelimit_strategy_pb2 import RateLimitStrategy
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from penstock.service.rlqs import messages
from penstock.service.rlqs.messages import (
    ALLOW_ALL,
    DENY_ALL,
    Abandon,
    Blanket,
    Reports,
    Tokens,
    Usage,
    bucket_id,
    read_reports,
    write_action,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
BUCKETS = st.dictionaries(TEXTS, TEXTS, max_size=4)
COUNTS = st.one_of(st.integers(0, 300), st.integers(0, 2**63))
USAGES = st.lists(st.tuples(BUCKETS, COUNTS, COUNTS, st.integers(0, 10**6)), max_size=5)


def reports_of(domain: str, usages: list[tuple[dict[str, str], int, int, int]]) -> Any:
    reports = rlqs_pb2.RateLimitQuotaUsageReports(domain=domain)
    for bucket, allowed, denied, elapsed in usages:
        usage = reports.bucket_quota_usages.add()
        usage.bucket_id.bucket.update(bucket)
        usage.num_requests_allowed, usage.num_requests_denied = allowed, denied
        usage.time_elapsed.FromMilliseconds(elapsed)
    return reports


@given(TEXTS, USAGES)
def test_reports_are_read(domain: str, usages: list[tuple[dict[str, str], int, int, int]]) -> None:
    data = reports_of(domain, usages).SerializeToString()
    expected = [
        Usage(tuple(sorted(bucket.items())), allowed + denied)
        for bucket, allowed, denied, _ in usages
    ]
    assert read_reports(data) == Reports(domain, expected)


@given(st.binary(max_size=60))
def test_rubbish_is_an_error_or_what_protobuf_reads(data: bytes) -> None:
    check_as_protobuf(data)


@given(TEXTS, USAGES, st.data())
def test_a_damaged_report_is_an_error_or_what_protobuf_reads(
    domain: str, usages: list[tuple[dict[str, str], int, int, int]], data: st.DataObject
) -> None:
    message = bytearray(reports_of(domain, usages).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        if message:
            at = data.draw(st.integers(0, len(message) - 1))
            message[at] = data.draw(st.integers(0, 255))
    check_as_protobuf(bytes(message))


def check_as_protobuf(data: bytes) -> None:
    try:
        parsed = rlqs_pb2.RateLimitQuotaUsageReports.FromString(data)
    except DecodeError:
        parsed = None
    try:
        reports = read_reports(data)
    except ValueError:
        assert parsed is None
        return
    if parsed is not None:
        assert reports.domain == parsed.domain
        assert reports.usages == [
            Usage(
                tuple(sorted(usage.bucket_id.bucket.items())),
                min(2**64 - 1, usage.num_requests_allowed + usage.num_requests_denied),
            )
            for usage in parsed.bucket_quota_usages
        ]


def written(pairs: tuple[tuple[str, str], ...], action: messages.Action, ttl: int) -> Any:
    data = write_action(bucket_id(pairs), action, ttl)
    (read,) = rlqs_pb2.RateLimitQuotaResponse.FromString(data).bucket_action
    assert dict(read.bucket_id.bucket) == dict(pairs)
    return read


@given(
    BUCKETS, st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1), st.integers(1, 10**7),
    st.integers(1, 1000),
)  # fmt: skip
def test_token_buckets_are_written(
    bucket: dict[str, str], most: int, fill: int, interval: int, ttl: int
) -> None:
    action = written(tuple(sorted(bucket.items())), Tokens(most, fill, interval), ttl)
    assignment = action.quota_assignment_action
    tokens = assignment.rate_limit_strategy.token_bucket
    assert (tokens.max_tokens, tokens.tokens_per_fill.value) == (most, fill)
    assert tokens.HasField("tokens_per_fill")
    assert (tokens.fill_interval.seconds, tokens.fill_interval.nanos) == (interval, 0)
    assert (assignment.assignment_time_to_live.seconds) == ttl


@pytest.mark.parametrize("rule", [ALLOW_ALL, DENY_ALL])
def test_blanket_rules_are_written(rule: int) -> None:
    action = written((("user", "a"),), Blanket(rule), 15)
    strategy = action.quota_assignment_action.rate_limit_strategy
    assert strategy.WhichOneof("strategy") == "blanket_rule"  # ALLOW_ALL is 0, but not absent
    assert strategy.blanket_rule == [RateLimitStrategy.ALLOW_ALL, RateLimitStrategy.DENY_ALL][rule]


def test_an_abandon_action_is_written() -> None:
    action = written((("user", "a"),), Abandon(), 15)
    assert action.HasField("abandon_action")
    assert not action.HasField("quota_assignment_action")


@pytest.mark.parametrize("ttl", [0, -1])
def test_an_assignment_that_expires_at_once_is_not_written(ttl: int) -> None:
    with pytest.raises(ValueError, match="expire at once"):
        write_action(b"", Blanket(ALLOW_ALL), ttl)


@pytest.mark.parametrize(
    "tokens", [Tokens(0, 1, 100), Tokens(1, 0, 100), Tokens(1, 1, 0), Tokens(2**32, 1, 100)]
)
def test_what_confuses_envoy_is_not_written(tokens: Tokens) -> None:
    with pytest.raises(ValueError, match="Envoy does not handle"):
        write_action(b"", tokens, 15)


def test_too_many_buckets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_BUCKETS", 3)
    message = reports_of("a", [({}, 1, 1, 1)] * 3).SerializeToString()
    assert len(read_reports(message).usages) == 3
    with pytest.raises(ValueError, match="more than 3 buckets"):
        read_reports(message + b"\x12\x00")
