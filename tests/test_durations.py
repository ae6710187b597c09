"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import LimitError
from penstock.durations import (
    DAY,
    HOUR,
    LONGEST,
    MINUTE,
    SECOND,
    Duration,
    format_duration,
    format_period,
    parse_duration,
)

RIGHT: list[tuple[Duration, int]] = [
    ("second", SECOND),
    ("minute", MINUTE),
    ("hour", HOUR),
    ("day", DAY),
    ("week", 7 * DAY),
    ("month", 30 * DAY),
    ("year", 365 * DAY),
    ("30s", 30 * SECOND),
    ("30 s", 30 * SECOND),
    (" 30 Seconds ", 30 * SECOND),
    ("1h30m", 90 * MINUTE),
    ("1h 30m", 90 * MINUTE),
    ("2 hours 5 minutes", 125 * MINUTE),
    ("1.5h", 90 * MINUTE),
    ("0.1s", SECOND // 10),
    ("250ms", SECOND // 4),
    ("7us", 7_000),
    ("7µs", 7_000),
    ("1ns", 1),
    ("2mo", 60 * DAY),
    ("10y", LONGEST),
    (60, MINUTE),
    (1.5, SECOND + SECOND // 2),
    (0.1, SECOND // 10),
    (1e-9, 1),
    (timedelta(days=1, seconds=2, microseconds=3), DAY + 2 * SECOND + 3_000),
    (timedelta(microseconds=1), 1_000),
]

EXAMPLE = "write it like 'minute', '30s', '1h30m' or '250ms'"
RANGE = "per must be above zero and at most 10 years, not "
KIND = "per must be a duration such as '30s', 'minute', 60 (seconds) or a timedelta, not "
WRONG: list[tuple[object, str]] = [
    ("", f"per '' is not a duration: {EXAMPLE}"),
    ("  ", f"per '  ' is not a duration: {EXAMPLE}"),
    ("30", f"per '30' is not a duration: {EXAMPLE}"),
    ("-30s", f"per '-30s' is not a duration: {EXAMPLE}"),
    ("30s!", f"per '30s!' is not a duration: {EXAMPLE}"),
    ("1h minute", f"per '1h minute' is not a duration: {EXAMPLE}"),
    ("minute 30s", f"per 'minute 30s' is not a duration: {EXAMPLE}"),
    (
        "5 lustra",
        "per '5 lustra' has an unknown unit 'lustra': use one of nanosecond, microsecond,"
        " millisecond, second, minute, hour, day, week, month, year",
    ),
    ("0s", RANGE + "'0s'"),
    (0, RANGE + "0"),
    (-1, RANGE + "-1"),
    (-0.5, RANGE + "-0.5"),
    (timedelta(0), RANGE + "datetime.timedelta(0)"),
    ("11y", RANGE + "'11y'"),
    (10**12, RANGE + "1000000000000"),
    (1e-10, "per 1e-10 is not a whole number of nanoseconds"),
    ("0.5ns", "per '0.5ns' is not a whole number of nanoseconds"),
    (float("nan"), "per must be a finite number of seconds, not nan"),
    (float("inf"), "per must be a finite number of seconds, not inf"),
    (float("-inf"), "per must be a finite number of seconds, not -inf"),
    (None, KIND + "None"),
    (True, KIND + "True"),
    (b"30s", KIND + "b'30s'"),
]


@pytest.mark.parametrize(("value", "size"), RIGHT)
def test_reads(value: Duration, size: int) -> None:
    assert parse_duration(value, "per") == size


@pytest.mark.parametrize(("value", "message"), WRONG)
def test_says_what_is_wrong(value: Duration, message: str) -> None:
    with pytest.raises(LimitError) as caught:
        parse_duration(value, "per")
    assert str(caught.value) == message


def test_names_what_the_duration_was_for() -> None:
    with pytest.raises(LimitError, match=r"^lockout 'soon' has an unknown unit 'soon'"):
        parse_duration("soon", "lockout")


def test_an_absurdly_long_number_is_an_error_of_ours() -> None:
    for value in ("9" * 5000 + "s", int("9" * 4000) * 10**1000):
        with pytest.raises(LimitError):
            parse_duration(value, "per")


@pytest.mark.parametrize(
    ("size", "period", "duration"),
    [
        (MINUTE, "minute", "1m"),
        (90 * SECOND, "90s", "90s"),
        (15 * MINUTE, "15m", "15m"),
        (1_500_000_000, "1500ms", "1500ms"),
        (7 * DAY, "week", "1w"),
        (30 * DAY, "month", "30d"),
        (365 * DAY, "year", "365d"),
        (1, "nanosecond", "1ns"),
        (1_001, "1001ns", "1001ns"),
    ],
)
def test_writes_the_shortest_exact_form(size: int, period: str, duration: str) -> None:
    assert (format_period(size), format_duration(size)) == (period, duration)


@given(st.integers(1, LONGEST))
def test_what_was_written_reads_back(size: int) -> None:
    assert parse_duration(format_duration(size), "per") == size
    assert parse_duration(format_period(size), "per") == size
