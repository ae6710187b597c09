"""Envoy: the local rate limit filter, an entry of ``http_filters``.

Its buckets refill continuously, as Penstock's do. A descriptor entry without a value has a bucket
for each value; beyond ``max_dynamic_descriptors``, the least recent is forgotten, and its client
gets a full bucket again. Buckets are taken one after the other: a request that one refuses stays
counted in those before it.
"""

from __future__ import annotations

from math import gcd

from penstock.errors import RulesError
from penstock.limits import Limit
from penstock.replay.exporting.escaping import (
    HEADER_NAME,
    address_of,
    comment,
    quoted,
    re2,
    re2_path,
)
from penstock.replay.exporting.items import (
    Item,
    Part,
    Piece,
    merged,
)
from penstock.replay.exporting.numbers import (
    SECOND,
    Choices,
    Job,
    as_bucket,
    check,
    notes,
    together_note,
)
from penstock.replay.exporting.sources import ADDRESS, COOKIE, HEADER, HOST, METHOD, PATH

NAME, FILE = "Envoy", "penstock-limits.yaml"
LOAD = (
    "Put it into http_filters of the HTTP connection manager, before envoy.filters.http.router.",
    "Check it: envoy --mode validate -c envoy.yaml",
    "",
    "- Every Envoy counts for itself; its workers count together.",
    "- Clients are known by their address if use_remote_address is true, or by X-Forwarded-For.",
    "- Rules by path need normalize_path and merge_slashes in the HTTP connection manager:",
    "  without them, /%6Cogin is not /login.",
    "- Envoy 1.40 refills buckets continuously, as Penstock does; old ones refill them in steps.",
    "- max_dynamic_descriptors is the room for keys. If there are more, clients that were",
    "  forgotten begin with a full bucket.",
)
TYPES = "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3"
_EXPRESSION = "envoy.rate_limit_descriptors.expr"
_EXPRESSION_TYPE = "type.googleapis.com/envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor"
_LEAST_INTERVAL = SECOND // 20
_MOST = 2**32 - 1
_KEY = "penstock"
_HEADERS = {METHOD: ":method", PATH: ":path", HOST: ":authority"}


def write(item: Item, job: Job) -> Piece:
    """Sections: ``rate_limits``, and ``descriptors``."""
    choices = job.choices
    if item.concurrency:
        raise RulesError(
            "Envoy counts running requests for a whole cluster only: see circuit_breakers, or keep"
            " concurrency in Penstock"
        )
    if item.closed:
        raise RulesError(
            "Envoy has no bucket of 0: write a route with direct_response: {status: 429}"
        )
    if item.limit.algorithm == "leaky_bucket":
        raise RulesError("Envoy delays no requests: write algorithm: token_bucket")
    bucket, piece = as_bucket(item, choices)
    together_note(piece, job.meeting(item))
    tokens, interval = _fill(bucket)
    piece.means = Limit(tokens, f"{interval}ns", burst=bucket.burst)
    actions = [f"generic_key: {{descriptor_key: {_KEY}, descriptor_value: {item.name}}}"]
    entries = [f"{{key: {_KEY}, value: {item.name}}}"]
    for at, part in enumerate(item.parts):
        for action, entry in _actions(part, at):
            actions.append(action)
            entries.append(entry)
    check(piece, choices)
    seconds = f"{interval / SECOND:.9f}".rstrip("0").rstrip(".")
    fill = f"max_tokens: {bucket.burst}, tokens_per_fill: {tokens}, fill_interval: {seconds}s"
    descriptor = [f"- entries: [{', '.join(entries)}]", f"  token_bucket: {{{fill}}}"]
    if item.rule.shadow:
        descriptor.append("  shadow_mode: true")
    lines = [*notes(piece), "- actions:", *(f"  - {action}" for action in actions)]
    piece.sections = (lines, [*notes(piece)[:1], *descriptor])
    return piece


def whole(pieces: list[Piece], choices: Choices) -> list[str]:
    """The filter."""
    limits, descriptors = merged(pieces)
    room = sum(choices.room(piece.item) for piece in pieces if piece.item.counted)
    always = "{default_value: {numerator: 100, denominator: HUNDRED}}"
    return [
        "- name: envoy.filters.http.local_ratelimit",
        "  typed_config:",
        f'    "@type": {TYPES}.LocalRateLimit',
        "    stat_prefix: penstock",
        f"    filter_enabled: {always}",
        f"    filter_enforced: {always}",
        "    # For requests that no descriptor is for: as good as no limit.",
        f"    token_bucket: {{max_tokens: {_MOST}, tokens_per_fill: {_MOST}, fill_interval: 1s}}",
        "    always_consume_default_token_bucket: false",
        *([f"    max_dynamic_descriptors: {min(room, _MOST)}"] if room else []),
        "    rate_limits:",
        *(f"    {line}" for line in limits),
        "    descriptors:",
        *(f"    {line}" for line in descriptors),
    ]


def _fill(bucket: Limit) -> tuple[int, int]:
    """So many tokens in so many nanoseconds, in the smallest steps that Envoy takes."""
    common = gcd(bucket.amount, bucket.period_ns)
    amount, period = bucket.amount // common, bucket.period_ns // common
    times = -(-_LEAST_INTERVAL // period) if period < _LEAST_INTERVAL else 1
    if amount * times > _MOST or bucket.burst > _MOST:
        raise RulesError(f"{bucket}: Envoy counts to {_MOST:,} only")
    return amount * times, period * times


# What it counts by -------------------------------------------------------------------------------


def _actions(part: Part, at: int) -> list[tuple[str, str]]:
    """Pairs of an action and of what the descriptor has for it."""
    kind = part.source.kind
    if kind == ADDRESS:
        return [_address(part)]
    if kind == COOKIE:
        raise RulesError("Envoy's descriptors know no cookies: count by a header")
    name = _HEADERS.get(kind) or _header_name(part)
    out = []
    for number, other in enumerate(part.others):
        out.append(_match(name, other, f"{_KEY}_{at}_not_{number}", expect=False))
    if part.value is not None:
        out.append(_match(name, part.value, f"{_KEY}_{at}", expect=True))
    if part.counted:
        key = f"{_KEY}_{at}_value"
        action = f'request_headers: {{header_name: "{name}", descriptor_key: {key}}}'
        if kind == PATH:  # the header has the query, too
            action = (
                f'extension: {{name: {_EXPRESSION}, typed_config: {{"@type": {_EXPRESSION_TYPE},'
                f" descriptor_key: {key}, text: request.url_path}}}}"
            )
        out.append((action, f"{{key: {key}}}"))
    return out


def _header_name(part: Part) -> str:
    if part.source.kind != HEADER or not HEADER_NAME.fullmatch(part.source.name):
        raise RulesError(f"{comment(part.source.name)!r} is no name of a header for Envoy")
    return part.source.name


def _match(name: str, value: str, key: str, *, expect: bool) -> tuple[str, str]:
    wildcard = "*" in value
    if name == ":path":
        matcher = f"safe_regex: {{regex: {quoted(re2_path(value, wildcard=wildcard) + _QUERY)}}}"
    elif wildcard:
        matcher = f"safe_regex: {{regex: {quoted(re2(value, wildcard=True))}}}"
    else:
        matcher = f"exact: {quoted(value)}"
    expected = "" if expect else ", expect_match: false"
    return (
        f"header_value_match: {{descriptor_key: {key}, descriptor_value: fits{expected},"
        f' headers: [{{name: "{name}", string_match: {{{matcher}}}}}]}}',
        f"{{key: {key}, value: fits}}",
    )


_QUERY = r"(?:[?#].*)?"


def _address(part: Part) -> tuple[str, str]:
    if part.others:
        raise RulesError(
            "Envoy cannot leave some addresses out: export the other rules on their own, by --rule"
        )
    if part.value is None:
        ipv4, ipv6 = part.group or (32, 128)
        masks = f"v4_prefix_mask_len: {ipv4}, v6_prefix_mask_len: {ipv6}"
        return f"masked_remote_address: {{{masks}}}", "{key: masked_remote_address}"
    value = address_of(part.value)
    return "remote_address: {}", f'{{key: remote_address, value: "{value}"}}'
