"""What the headers of an answer say about limits; invalid values are ignored.

====================================  =====================================================
``Retry-After``                       seconds, or a date
``RateLimit``, ``RateLimit-Policy``   lists of policies, by name: r, t and q, w (IETF draft)
``RateLimit-Limit/-Remaining/-Reset`` the draft before it; Reset in seconds from now
``X-RateLimit-Limit/...``             the same by custom; Reset is seconds from now, or since
                                      1970 if at least 10^9, in milliseconds if at least 10^12
====================================  =====================================================

Of the last three kinds, the first that is present is used. A date is compared with the ``Date``
of the same response if it has one, so that wrong clocks do not matter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Protocol

from penstock.client.structured import Date, Item, read_list

# Longer times are cut to this: 31 days.
LONGEST = 31 * 86_400.0
# Further policies in one answer are ignored.
MOST_POLICIES = 16
SECONDS_SINCE_1970 = 10**9
MILLISECONDS_SINCE_1970 = 10**12

_DELAY = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
# The three forms of RFC 9110: IMF-fixdate, RFC 850, asctime.
_DAY, _MONTH, _TIME = r"[A-Z][a-z]{2}", r"[A-Z][a-z]{2}", r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_DATE = re.compile(
    rf"{_DAY}, [0-9]{{2}} {_MONTH} [0-9]{{4}} {_TIME} GMT"
    rf"|[A-Z][a-z]{{5,8}}, [0-9]{{2}}-{_MONTH}-[0-9]{{2}} {_TIME} GMT"
    rf"|{_DAY} {_MONTH} [0-9 ][0-9] {_TIME} [0-9]{{4}}"
)


class Headers(Protocol):
    """Headers by name, in upper or lower case."""

    def get(self, name: str, default: None = None, /) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Standing:
    """What is left of one policy. Times are seconds; None means not given."""

    name: str
    remaining: int
    reset: float | None = None
    quota: int | None = None
    window: float | None = None


@dataclass(frozen=True, slots=True)
class ServerHints:
    """Everything that one answer said."""

    retry_after: float | None = None
    standings: tuple[Standing, ...] = ()


def read(headers: Headers, now: float) -> ServerHints:
    """Read ``headers``. ``now`` is seconds since 1970, for answers without a date."""
    sent = read_date(headers.get("date"))
    reference = now if sent is None else sent
    standings = (
        _policies(headers)
        or _triple(headers, "ratelimit", None)
        or _triple(headers, "x-ratelimit", reference)
    )
    return ServerHints(read_delay(headers.get("retry-after"), reference), standings)


def read_delay(text: str | None, reference: float) -> float | None:
    """The seconds of a ``Retry-After``; a date counts from ``reference``."""
    if text is None:
        return None
    if _DELAY.fullmatch(text.strip()):
        return min(float(text), LONGEST)
    date = read_date(text)
    return None if date is None else min(max(0.0, date - reference), LONGEST)


def read_date(text: str | None) -> float | None:
    """An HTTP date as seconds since 1970."""
    if text is None or not _DATE.fullmatch(text.strip()):
        return None
    try:
        date = parsedate_to_datetime(text)
        # asctime has no zone; GMT is meant.
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, IndexError):
        return None


def _policies(headers: Headers) -> tuple[Standing, ...]:
    quotas = {_name(item): item for item in _members(headers.get("ratelimit-policy"))}
    standings: dict[str, Standing] = {}
    for item in _members(headers.get("ratelimit")):
        name = _name(item)
        policy = quotas.get(name)
        remaining = _whole(item.parameters.get("r"))
        if name is None or remaining is None:
            continue
        # Limits on bytes or on concurrent requests are not supported.
        if policy is not None and policy.parameters.get("qu", "requests") != "requests":
            continue
        standings[name] = Standing(
            name,
            remaining,
            _seconds(item.parameters.get("t")),
            (_whole(policy.parameters.get("q")) or None) if policy else None,
            (_seconds(policy.parameters.get("w")) or None) if policy else None,
        )
    return tuple(standings.values())[:MOST_POLICIES]


def _members(text: str | None) -> Iterable[Item]:
    return (read_list(text) or ()) if text is not None else ()


def _name(item: Item) -> str | None:
    """A policy's name, and its partition key if it has one."""
    if not isinstance(item.value, str):
        return None
    partition = item.parameters.get("pk")
    return item.value if partition is None else f"{item.value};pk={partition!r}"


def _triple(headers: Headers, prefix: str, reference: float | None) -> tuple[Standing, ...]:
    remaining = _whole(_first(headers.get(f"{prefix}-remaining")))
    if remaining is None:
        return ()
    reset = _seconds(_first(headers.get(f"{prefix}-reset")), most=math.inf)
    if reset is not None and reference is not None and reset >= SECONDS_SINCE_1970:
        since = reset / 1000 if reset >= MILLISECONDS_SINCE_1970 else reset
        reset = max(0.0, since - reference)
    if reset is not None:
        reset = min(reset, LONGEST)
    limits = list(_members(headers.get(f"{prefix}-limit")))
    quota = _whole(limits[0].value) if limits else None
    # "100, 100;w=60": the limit that applies, then all policies.
    windows = [_seconds(item.parameters.get("w")) for item in limits if item.value == quota]
    window = next((window for window in windows if window), None)
    return (Standing(prefix, remaining, reset, quota or None, window),)


def _first(text: str | None) -> object:
    members = list(_members(text))
    return members[0].value if members else None


def _whole(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _seconds(value: object, most: float = LONGEST) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, (bool, Date)) or value < 0:
        return None
    return min(float(value), most)
