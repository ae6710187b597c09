"""Periods as tables: month ends, anchors, zones, leap years, daylight saving."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.quota.periods import UNITS, Anchor, period_at
from penstock.quota.values import moment, nanoseconds


def at(text: str, tz: str = "UTC") -> int:
    when = datetime.fromisoformat(text)
    return nanoseconds(when if when.tzinfo else when.replace(tzinfo=ZoneInfo(tz)))


def span(when: str, unit: str, tz: str, day: int = 1, month: int = 1) -> tuple[str, str]:
    period = period_at(at(when, tz), unit, Anchor(tz, day, month))
    starts, ends = (moment(instant, tz).isoformat(timespec="minutes") for instant in period)
    return starts, ends


MONTHS = [
    # anchor, a moment in UTC, the period
    (1, "2024-01-01T00:00", "2024-01-01", "2024-02-01"),
    (1, "2024-01-31T23:59:59.999999", "2024-01-01", "2024-02-01"),
    (15, "2024-01-14T23:59", "2023-12-15", "2024-01-15"),
    (15, "2024-01-15T00:00", "2024-01-15", "2024-02-15"),
    # 31 is the last day of every month
    (31, "2024-01-31T00:00", "2024-01-31", "2024-02-29"),
    (31, "2024-02-28T23:00", "2024-01-31", "2024-02-29"),
    (31, "2024-02-29T00:00", "2024-02-29", "2024-03-31"),
    (31, "2024-04-30T00:00", "2024-04-30", "2024-05-31"),
    (31, "2024-12-31T00:00", "2024-12-31", "2025-01-31"),
    # without a leap day
    (31, "2023-02-28T00:00", "2023-02-28", "2023-03-31"),
    (30, "2023-02-27T00:00", "2023-01-30", "2023-02-28"),
    (30, "2023-03-29T00:00", "2023-02-28", "2023-03-30"),
    (29, "2023-02-28T12:00", "2023-02-28", "2023-03-29"),
    (29, "2024-02-28T12:00", "2024-01-29", "2024-02-29"),
    # centuries
    (31, "2100-02-28T12:00", "2100-02-28", "2100-03-31"),
    (31, "2000-02-28T12:00", "2000-01-31", "2000-02-29"),
]


@pytest.mark.parametrize(("anchor", "when", "starts", "ends"), MONTHS)
def test_months(anchor: int, when: str, starts: str, ends: str) -> None:
    assert span(when, "month", "UTC", anchor) == (
        f"{starts}T00:00+00:00",
        f"{ends}T00:00+00:00",
    )


YEARS = [
    (1, 1, "2024-06-01T00:00", "2024-01-01", "2025-01-01"),
    (29, 2, "2024-02-29T00:00", "2024-02-29", "2025-02-28"),
    (29, 2, "2025-02-28T00:00", "2025-02-28", "2026-02-28"),
    (29, 2, "2028-02-28T00:00", "2027-02-28", "2028-02-29"),
    (31, 8, "2024-08-30T23:59", "2023-08-31", "2024-08-31"),
    (31, 12, "2024-12-31T00:00", "2024-12-31", "2025-12-31"),
]


@pytest.mark.parametrize(("day", "month", "when", "starts", "ends"), YEARS)
def test_years(day: int, month: int, when: str, starts: str, ends: str) -> None:
    assert span(when, "year", "UTC", day, month) == (
        f"{starts}T00:00+00:00",
        f"{ends}T00:00+00:00",
    )


ZONES = [
    # unit, zone, anchor, a moment, the period; "2024-02-01 +08:00" is midnight with that offset
    # The same instant lies in different months.
    ("month", "Asia/Taipei", 1, "2024-01-31T20:00Z", "2024-02-01 +08:00", "2024-03-01 +08:00"),
    ("month", "America/New_York", 1, "2024-02-01T03:00Z", "2024-01-01 -05:00", "2024-02-01 -05:00"),
    # Daylight saving begins or ends within.
    ("month", "Europe/Berlin", 1, "2024-03-15T00:00Z", "2024-03-01 +01:00", "2024-04-01 +02:00"),
    ("month", "Europe/Berlin", 1, "2024-10-15T00:00Z", "2024-10-01 +02:00", "2024-11-01 +01:00"),
    ("day", "Europe/Berlin", 1, "2024-03-31T12:00Z", "2024-03-31 +01:00", "2024-04-01 +02:00"),
    ("day", "Europe/Berlin", 1, "2024-10-27T12:00Z", "2024-10-27 +02:00", "2024-10-28 +01:00"),
    ("week", "Europe/Berlin", 1, "2024-03-31T12:00Z", "2024-03-25 +01:00", "2024-04-01 +02:00"),
    # Midnight does not exist: Chile springs forward at 0:00 on September 8, 2024.
    ("month", "America/Santiago", 8, "2024-09-10", "2024-09-08T01:00-03:00", "2024-10-08 -03:00"),
    # Midnight happens twice: Cuba falls back at 1:00 on November 3, 2024.
    ("month", "America/Havana", 3, "2024-11-03T04:30Z", "2024-11-03 -04:00", "2024-12-03 -05:00"),
    # Half an hour, three quarters, a whole day that never was (Samoa, December 30, 2011).
    ("month", "Asia/Kolkata", 1, "2024-01-31T18:30Z", "2024-02-01 +05:30", "2024-03-01 +05:30"),
    ("month", "Asia/Kathmandu", 1, "2024-01-31T18:15Z", "2024-02-01 +05:45", "2024-03-01 +05:45"),
    ("month", "Pacific/Apia", 31, "2012-01-01T12:00Z", "2011-12-31 +14:00", "2012-01-31 +14:00"),
    ("hour", "Asia/Kolkata", 1, "2024-01-31T18:45Z", "2024-02-01 +05:30", "2024-02-01T01:00+05:30"),
]  # fmt: skip


@pytest.mark.parametrize(("unit", "tz", "day", "when", "starts", "ends"), ZONES)
def test_zones(unit: str, tz: str, day: int, when: str, starts: str, ends: str) -> None:
    expected = starts.replace(" ", "T00:00"), ends.replace(" ", "T00:00")
    assert span(when, unit, tz, day) == expected


INSTANTS = st.datetimes(datetime(1972, 1, 1), datetime(2120, 1, 1)).map(
    lambda when: nanoseconds(when.replace(tzinfo=UTC))
)
ANCHORS = st.builds(
    Anchor,
    st.sampled_from(
        ["UTC", "Asia/Taipei", "Europe/Berlin", "America/Santiago", "America/Havana",
         "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Asia/Kathmandu"]
    ),
    st.integers(1, 31),
    st.integers(1, 12),
)  # fmt: skip


@given(INSTANTS, st.sampled_from(UNITS), ANCHORS)
def test_every_moment_lies_in_exactly_one_period(now: int, unit: str, anchor: Anchor) -> None:
    period = period_at(now, unit, anchor)
    assert period.starts <= now < period.ends
    assert period_at(period.starts, unit, anchor) == period
    assert period_at(period.ends - 1, unit, anchor) == period
    following = period_at(period.ends, unit, anchor)
    assert following.starts == period.ends
    before = period_at(period.starts - 1, unit, anchor)
    assert before.ends == period.starts


@given(INSTANTS, ANCHORS)
def test_a_year_has_twelve_months_and_begins_with_one(now: int, anchor: Anchor) -> None:
    year = period_at(now, "year", anchor)
    instant, months = year.starts, 0
    while instant < year.ends:
        instant = period_at(instant, "month", anchor).ends
        months += 1
    assert (instant, months) == (year.ends, 12)


def test_a_month_is_never_longer_than_it_can_be() -> None:
    instant = at("2023-01-31T00:00")
    for _ in range(50):
        period = period_at(instant, "month", Anchor("UTC", 31))
        days = timedelta(microseconds=(period.ends - period.starts) // 1000).days
        assert 28 <= days <= 31
        instant = period.ends
