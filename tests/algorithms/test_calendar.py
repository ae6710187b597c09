"""Calendar windows: days of 23 and 25 hours, midnights that are missing, leap days."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.algorithms.calendar import calendar_window

SECOND = 10**9
UNITS = ("minute", "hour", "day", "week", "month", "year")
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Asia/Taipei",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Cairo",
    "Asia/Gaza",
    "America/Havana",
)

# Zone, unit, a moment, and the window around it: all in UTC.
WINDOWS = [
    # Clocks go forward, and back: a day of 23 hours, and one of 25.
    ("Europe/Berlin", "day", "2024-03-31T12:00", "2024-03-30T23:00", "2024-03-31T22:00"),
    ("Europe/Berlin", "day", "2024-10-27T12:00", "2024-10-26T22:00", "2024-10-27T23:00"),
    ("America/New_York", "day", "2024-03-10T05:00", "2024-03-10T05:00", "2024-03-11T04:00"),
    ("America/New_York", "week", "2024-11-03T12:00", "2024-10-28T04:00", "2024-11-04T05:00"),
    ("Europe/Berlin", "month", "2024-03-31T21:59", "2024-02-29T23:00", "2024-03-31T22:00"),
    # Midnight of 4 November 2018 does not exist in Brazil: that day begins at one.
    ("America/Sao_Paulo", "day", "2018-11-04T02:59", "2018-11-03T03:00", "2018-11-04T03:00"),
    ("America/Sao_Paulo", "day", "2018-11-04T03:00", "2018-11-04T03:00", "2018-11-05T02:00"),
    # In February, midnight sent clocks back to 23:00: 17 February has 25 hours.
    ("America/Sao_Paulo", "day", "2018-02-18T02:30", "2018-02-17T02:00", "2018-02-18T03:00"),
    # Newfoundland went back at 0:01: the hour that is shown as the 28th again is the 29th's.
    ("America/St_Johns", "day", "2006-10-29T02:29", "2006-10-28T02:30", "2006-10-29T02:30"),
    ("America/St_Johns", "day", "2006-10-29T02:30", "2006-10-29T02:30", "2006-10-30T03:30"),
    ("America/St_Johns", "day", "2006-10-29T03:00", "2006-10-29T02:30", "2006-10-30T03:30"),
    ("America/St_Johns", "day", "2006-10-29T03:30", "2006-10-29T02:30", "2006-10-30T03:30"),
    # Half an hour of daylight saving.
    ("Australia/Lord_Howe", "day", "2024-04-07T00:00", "2024-04-06T13:00", "2024-04-07T13:30"),
    ("Australia/Lord_Howe", "day", "2024-10-06T00:00", "2024-10-05T13:30", "2024-10-06T13:00"),
    # Samoa had no 30 December 2011, and a week of six days.
    ("Pacific/Apia", "day", "2011-12-30T09:59", "2011-12-29T10:00", "2011-12-30T10:00"),
    ("Pacific/Apia", "day", "2011-12-30T10:00", "2011-12-30T10:00", "2011-12-31T10:00"),
    ("Pacific/Apia", "week", "2011-12-31T00:00", "2011-12-26T10:00", "2012-01-01T10:00"),
    # Leap days, and the ends of months.
    ("Asia/Taipei", "day", "2024-02-29T00:00", "2024-02-28T16:00", "2024-02-29T16:00"),
    ("Asia/Taipei", "month", "2024-02-29T15:59", "2024-01-31T16:00", "2024-02-29T16:00"),
    ("Asia/Taipei", "month", "2023-02-28T15:59", "2023-01-31T16:00", "2023-02-28T16:00"),
    ("Asia/Taipei", "month", "2000-02-29T15:59", "2000-01-31T16:00", "2000-02-29T16:00"),
    ("America/New_York", "month", "2024-04-30T12:00", "2024-04-01T04:00", "2024-05-01T04:00"),
    ("Europe/Berlin", "month", "2024-12-31T22:59", "2024-11-30T23:00", "2024-12-31T23:00"),
    ("Asia/Kathmandu", "year", "2024-06-01T00:00", "2023-12-31T18:15", "2024-12-31T18:15"),
    ("Asia/Kathmandu", "year", "2023-06-01T00:00", "2022-12-31T18:15", "2023-12-31T18:15"),
    # Weeks begin on Monday, also across a year.
    ("UTC", "week", "2024-01-01T00:00", "2024-01-01T00:00", "2024-01-08T00:00"),
    ("UTC", "week", "2023-12-31T23:59", "2023-12-25T00:00", "2024-01-01T00:00"),
    # Hours by the zone's own clock; the one that is repeated in autumn counts as two.
    ("Asia/Kathmandu", "hour", "2024-05-05T12:20", "2024-05-05T12:15", "2024-05-05T13:15"),
    ("Europe/Berlin", "hour", "2024-10-27T00:30", "2024-10-27T00:00", "2024-10-27T01:00"),
    ("Europe/Berlin", "hour", "2024-10-27T01:30", "2024-10-27T01:00", "2024-10-27T02:00"),
    ("America/St_Johns", "hour", "2024-07-01T12:29", "2024-07-01T11:30", "2024-07-01T12:30"),
    ("America/St_Johns", "minute", "2024-07-01T12:29", "2024-07-01T12:29", "2024-07-01T12:30"),
]


def at(moment: str) -> int:
    seconds = datetime.fromisoformat(moment).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return seconds // timedelta(seconds=1) * SECOND


@functools.cache
def changes(zone: str, year: int) -> list[int]:
    """When the zone's offset changes in that year, in nanoseconds."""
    found = []
    first = at(f"{year}-01-01") // SECOND
    for low in range(first, first + 366 * 86_400, 86_400):
        high = low + 86_400
        if offset(zone, low) == offset(zone, high):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (
                (middle, high) if offset(zone, middle) == offset(zone, low) else (low, middle)
            )
        found.append(high * SECOND)
    return found


def offset(zone: str, seconds: int) -> timedelta | None:
    return datetime.fromtimestamp(seconds, ZoneInfo(zone)).utcoffset()


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, int]:
    """A zone and a moment from 1971 to 2037, near a change of its clocks if there is one."""
    zone, year = draw(st.sampled_from(ZONES)), draw(st.integers(1971, 2037))
    day = 86_400 * SECOND
    near = changes(zone, year)
    if near and draw(st.booleans()):
        return zone, draw(st.sampled_from(near)) + draw(st.integers(-2 * day, 2 * day))
    return zone, at(f"{year}-01-01") + draw(st.integers(0, 365 * day))


@pytest.mark.parametrize(("zone", "unit", "now", "start", "end"), WINDOWS)
def test_the_window_around_a_moment(zone: str, unit: str, now: str, start: str, end: str) -> None:
    found = calendar_window(at(now), unit, ZoneInfo(zone))
    assert found[:2] == (at(start), at(end))
    # And so for every moment in it.
    assert calendar_window(at(start), unit, ZoneInfo(zone))[:2] == found[:2]
    assert calendar_window(at(end) - 1, unit, ZoneInfo(zone))[:2] == found[:2]


@pytest.mark.parametrize(("zone", "unit", "now", "start", "end"), WINDOWS)
def test_a_limiter_opens_with_the_window_and_not_before(
    limiter_of, clock, zone: str, unit: str, now: str, start: str, end: str
) -> None:
    clock.set(at(now))
    limiter = limiter_of(f"2/{unit} tz {zone}")
    assert limiter.hit("k", cost=2).reset_after == (at(end) - at(now)) / SECOND
    assert limiter.hit("k").retry_after == (at(end) - at(now)) / SECOND
    clock.set(at(end) - 1)
    assert not limiter.hit("k")
    clock.set(at(end))
    assert limiter.hit("k").remaining == 1


def test_a_limiter_goes_through_a_short_and_a_long_day(limiter_of, clock) -> None:
    """How many hours of each day: three days around each change in Berlin."""
    limiter = limiter_of("1/day tz Europe/Berlin")
    for first, hours in (("2024-03-29T23:00", [24, 23, 24]), ("2024-10-25T22:00", [24, 25, 24])):
        clock.set(at(first))
        seen = []
        for _ in range(3):
            day = limiter.hit("k")
            assert day
            seen.append(day.reset_after / 3600)
            clock.advance(day.reset_after)
        assert seen == hours


def test_a_calendar_without_a_zone_is_that_of_utc(limiter_of, clock) -> None:
    clock.set(at("2024-02-10T18:00"))
    limiter = limiter_of("1/month fixed_window align calendar")
    assert limiter.hit("k").reset_after == 19 * 86_400 + 6 * 3600


def test_going_back_over_midnight_earns_nothing(limiter_of, clock) -> None:
    clock.set(at("2006-10-29T02:30"))  # midnight in Newfoundland, for one minute
    limiter = limiter_of("1/day tz America/St_Johns")
    assert limiter.hit("k")
    for minutes in (1, 30, 61, 90, 1440):
        clock.set(at("2006-10-29T02:30") + minutes * 60 * SECOND)
        assert not limiter.hit("k")
    clock.set(at("2006-10-30T03:30"))
    assert limiter.hit("k")


@pytest.mark.parametrize("unit", UNITS)
@given(moment=moments())
@example(moment=("Australia/Lord_Howe", at("2024-04-06T15:10")))
@example(moment=("Asia/Kathmandu", at("1985-12-31T18:20")))
def test_windows_tile_time(unit: str, moment: tuple[str, int]) -> None:
    zone, now = ZoneInfo(moment[0]), moment[1]
    start, end, _ = calendar_window(now, unit, zone)
    assert start <= now < end
    assert calendar_window(start, unit, zone)[:2] == (start, end)
    assert calendar_window(end - 1, unit, zone)[:2] == (start, end)
    assert calendar_window(start - 1, unit, zone)[1] == start, "the one before ends here"
    assert calendar_window(end, unit, zone)[0] == end, "the next one begins here"


@pytest.mark.parametrize("unit", ["day", "week", "month", "year"])
@given(moment=moments())
@example(moment=("Pacific/Apia", at("2011-12-29T12:00")))
def test_the_end_of_the_next_window_is_known_beforehand(unit: str, moment: tuple[str, int]) -> None:
    zone, now = ZoneInfo(moment[0]), moment[1]
    _, end, after = calendar_window(now, unit, zone)
    assert calendar_window(end, unit, zone)[1] == after
