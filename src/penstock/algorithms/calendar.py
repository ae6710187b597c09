"""Where windows begin and end: multiples of a period, or the calendar of a time zone.

A calendar window is the hour, day, week (from Monday), month or year in which a
moment lies, as a clock on the wall of that zone shows it. Where daylight saving
moves that clock, a day has 23 or 25 hours, and an hour that is repeated counts as
two.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from penstock.durations import HOUR, MINUTE, SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_window(now: int, period: int) -> tuple[int, int, int]:
    """Start and end of the window that holds ``now``, and the end of the next one."""
    start = now // period * period
    return start, start + period, start + 2 * period


def calendar_window(now: int, unit: str, zone: ZoneInfo) -> tuple[int, int, int]:
    """The same for a calendar window of ``unit`` in ``zone``."""
    start, end = _span(now, unit, zone)
    return start, end, _span(end, unit, zone)[1]


def _span(now: int, unit: str, zone: ZoneInfo) -> tuple[int, int]:
    if unit in ("minute", "hour"):
        return _clock_span(now, MINUTE if unit == "minute" else HOUR, zone)
    day = _first_day(_local(now, zone), unit)
    start, end = start_of_day(day, zone), start_of_day(_step(day, unit), zone)
    if end <= now:
        # Clocks went back over midnight: the date on them has begun once already.
        start, end = end, start_of_day(_step(_step(day, unit), unit), zone)
    return start, end


def _clock_span(now: int, period: int, zone: ZoneInfo) -> tuple[int, int]:
    """Minutes and hours: the zone's offset may be odd, and a window ends where it changes."""
    offset = _offset(now, zone)
    start = (now + offset) // period * period - offset
    end = start + period
    if _offset(start, zone) != offset:
        start = _change(start, now, zone)
    if _offset(end - SECOND, zone) != offset:
        end = _change(now, end - SECOND, zone)
    return start, end


def _offset(now: int, zone: ZoneInfo) -> int:
    """How far the zone's clocks are ahead of UTC at that moment."""
    offset = _local(now, zone).utcoffset()
    assert offset is not None  # ZoneInfo always knows one
    return (offset.days * 86_400 + offset.seconds) * SECOND


def _change(low: int, high: int, zone: ZoneInfo) -> int:
    """The second after ``low`` and up to ``high`` at which the offset changes."""
    before, low, high = _offset(low, zone), low // SECOND, high // SECOND
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(middle * SECOND, zone) == before:
            low = middle
        else:
            high = middle
    return high * SECOND


def _local(now: int, zone: ZoneInfo) -> datetime:
    return (_EPOCH + timedelta(seconds=now // SECOND)).astimezone(zone)


def _first_day(local: datetime, unit: str) -> datetime:
    day = datetime(local.year, local.month, local.day)
    if unit == "week":
        return day - timedelta(days=day.weekday())
    if unit == "month":
        return day.replace(day=1)
    if unit == "year":
        return day.replace(month=1, day=1)
    return day


def _step(first: datetime, unit: str) -> datetime:
    """The first day of the following window."""
    if unit == "month":
        return (first + timedelta(days=31)).replace(day=1)
    if unit == "year":
        return first.replace(year=first.year + 1)
    return first + timedelta(days=7 if unit == "week" else 1)


def start_of_day(day: datetime, zone: ZoneInfo) -> int:
    """When ``day`` begins in ``zone``: the first moment that its clocks show that date.

    Midnight itself may not exist (a zone that springs forward at 0:00). Reading
    it with the offset from before the change names the moment of the change.
    """
    seconds = (day.replace(tzinfo=zone, fold=0) - _EPOCH) // timedelta(seconds=1)
    return seconds * SECOND
