"""Checks of what callers hand over: names, amounts, zones, times."""

from __future__ import annotations

import difflib
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from penstock.algorithms.calendar import start_of_day
from penstock.durations import SECOND, Duration, parse_duration
from penstock.errors import LimitError
from penstock.quota.errors import InvalidQuota

# Sums of amounts must fit in 64 bits.
MOST = 10**15
_LONGEST_NAME = 200
_LONGEST_NOTE = 2000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# When a credit ends: after a duration, or at a time. A date is its first moment in the zone of
# the account.
When = Duration | datetime | date


def check_name(name: object, what: str) -> str:
    """An account, a meter, a plan or a ref: some printable text."""
    if not isinstance(name, str):
        raise InvalidQuota(f"{what} is a str, not {name!r:.100}")
    return _check_text(name, what)


# Mostly the same ones: accounts, meters, ids of stocks.
@lru_cache(maxsize=8192)
def _check_text(name: str, what: str) -> str:
    if not name or len(name) > _LONGEST_NAME:
        raise InvalidQuota(f"{what} has 1 to {_LONGEST_NAME} characters, not {len(name)}")
    if not name.isprintable() or name != name.strip():
        raise InvalidQuota(f"{what} {name!r:.100} has control characters or outer spaces")
    return name


def check_note(note: object, what: str = "note") -> str:
    if not isinstance(note, str):
        raise InvalidQuota(f"{what} is a str, not {note!r:.100}")
    if len(note) > _LONGEST_NOTE or "\0" in note:
        raise InvalidQuota(f"{what} has at most {_LONGEST_NOTE} characters, and no NUL")
    try:
        note.encode()
    except UnicodeEncodeError:
        raise InvalidQuota(f"{what} is not valid Unicode") from None
    return note


def check_amount(amount: object, what: str = "amount", least: int = 1) -> int:
    if type(amount) is not int:
        raise InvalidQuota(f"{what} is a whole number of units, not {amount!r:.100}")
    if not least <= amount <= MOST:
        hint = "; to take units away, use adjust" if amount < 0 and what == "amount" else ""
        raise InvalidQuota(f"{what} is from {least} to {MOST:,}, not {amount:,}{hint}")
    return amount


def check_change(amount: object) -> int:
    """The amount of an adjustment: positive or negative, not zero."""
    if type(amount) is not int or amount == 0 or abs(amount) > MOST:
        raise InvalidQuota(
            f"an adjustment is a whole number other than 0, at most {MOST:,}, not {amount!r:.100}"
        )
    return amount


def check_deadline(deadline: object) -> float:
    """In seconds."""
    return _duration(deadline, "deadline") / SECOND  # type: ignore[arg-type]  # checked by it


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError):  # ZoneInfoNotFoundError is a KeyError
        pass
    except KeyError:
        pass
    close = difflib.get_close_matches(name, available_timezones(), 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise InvalidQuota(
        f"{name!r:.100} is no time zone: write a name such as 'Asia/Taipei' or 'UTC'{hint}"
    )


def check_zone(tz: object) -> str:
    if isinstance(tz, ZoneInfo) and tz.key is not None:
        tz = tz.key
    if not isinstance(tz, str):
        raise InvalidQuota(f"tz is the name of a time zone such as 'Asia/Taipei', not {tz!r:.100}")
    zone_of(tz)
    return tz


def check_anchor(anchor: object) -> tuple[int, int]:
    """Day and month on which periods begin, from a day of the month or a date."""
    if isinstance(anchor, str):
        try:
            anchor = date.fromisoformat(anchor)
        except ValueError:
            raise InvalidQuota(
                f"anchor {anchor!r:.100} is no date: write '2026-03-31', or a day from 1 to 31"
            ) from None
    if isinstance(anchor, date):
        return anchor.day, anchor.month
    if type(anchor) is int and 1 <= anchor <= 31:
        return anchor, 1
    raise InvalidQuota(f"anchor is a day of the month from 1 to 31, or a date, not {anchor!r:.100}")


def nanoseconds(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds * 1000


def moment(instant: int, tz: str = "UTC") -> datetime:
    """An instant as a datetime in a zone."""
    utc = _EPOCH + timedelta(seconds=instant // SECOND, microseconds=instant % SECOND // 1000)
    return utc.astimezone(zone_of(tz))


def instant_of(when: When, now: int, tz: str, what: str) -> int:
    """The instant of a duration from now, a datetime with a zone, or a date."""
    if isinstance(when, str) and len(when) >= 10 and when[4:5] == "-":
        try:
            when = date.fromisoformat(when) if len(when) == 10 else datetime.fromisoformat(when)
        except ValueError:
            raise InvalidQuota(
                f"{what} {when!r:.100} is no time: write '90d', '2026-12-31' or"
                f" '2026-12-31T12:00:00+01:00'"
            ) from None
    if isinstance(when, datetime):
        if when.tzinfo is None:
            when = when.replace(tzinfo=zone_of(tz))
        return nanoseconds(when)
    if isinstance(when, date):
        return start_of_day(datetime(when.year, when.month, when.day), zone_of(tz))
    if isinstance(when, str):
        return now + _duration_of(when, what)
    return now + _duration(when, what)


def _duration(duration: Duration, what: str) -> int:
    try:
        return parse_duration(duration, what)
    except LimitError as error:
        raise InvalidQuota(str(error)) from None


# A caller uses the same few all the time.
_duration_of = lru_cache(maxsize=256)(_duration)
