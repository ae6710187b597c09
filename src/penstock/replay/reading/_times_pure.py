"""Numbers and times in lines of logs, uncompiled: as in `_scanner.pyx`."""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache

SECOND = 1_000_000_000
NO_TIME = -1
_MOST_NUMBER = 1 << 62
_MONTH_NAMES = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip
_MONTHS = {name.encode(): number for number, name in enumerate(_MONTH_NAMES, 1)}
_EPOCH = date(1970, 1, 1).toordinal()
_CLF = re.compile(
    rb"\[?(\d\d)/(...)/(\d{4}):(\d\d):(\d\d):(\d\d)(?:\.(\d*))? ?(?:([+-]\d{4}).*|\].*|)", re.S
)
_ISO = re.compile(
    rb"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:[.,](\d*))? ?"
    rb"(?:([Zz])|([+-]\d\d(?::\d\d|\d\d|)))?",
    re.S,
)
_DECIMAL = re.compile(rb"(\d+)(?:\.(\d*))?")


def decimal(text: bytes, scale: int) -> int:
    match = _DECIMAL.fullmatch(text)
    if match is None:
        return -1
    whole = int(match[1])
    if whole // 10 > _MOST_NUMBER // 10 - 1 or whole > _MOST_NUMBER // scale:
        return -1
    value = whole * scale
    for digit in match[2] or b"":
        scale //= 10
        value += (digit - 48) * scale
    return value


def _fraction(digits: bytes | None) -> int:
    return int((digits or b"")[:9].ljust(9, b"0"))


@lru_cache(256)
def clf(text: bytes, zone: int) -> int:
    match = _CLF.fullmatch(text)
    if match is None:
        return NO_TIME
    day, month, year, hour, minute, second, part, offset = match.groups()
    time = _moment(int(year), _MONTHS.get(month, 0), int(day), int(hour), int(minute), int(second))
    if time < 0:
        return NO_TIME
    time = time * SECOND + _fraction(part)
    if offset is None:
        return time - zone
    return time - _offset(offset)


@lru_cache(256)
def iso(text: bytes, zone: int) -> int:
    match = _ISO.fullmatch(text)
    if match is None:
        return NO_TIME
    year, month, day, hour, minute, second, part, utc, offset = match.groups()
    time = _moment(int(year), int(month), int(day), int(hour), int(minute), int(second))
    if time < 0:
        return NO_TIME
    time = time * SECOND + _fraction(part)
    if utc is not None:
        return time
    return time - zone if offset is None else time - _offset(offset)


def _offset(text: bytes) -> int:
    """``+0100``, ``+01:00`` or ``+01`` in nanoseconds."""
    digits = text[1:].replace(b":", b"").ljust(4, b"0")
    offset = (int(digits[:2]) * 3600 + int(digits[2:4]) * 60) * SECOND
    return offset if text[:1] == b"+" else -offset


def _moment(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int:
    if not (1970 <= year <= 2200 and 1 <= month <= 12 and 1 <= day <= 31):
        return -1
    if not (hour < 24 and minute < 60 and second < 61):
        return -1
    # As in the compiled scanner, the 31st of February is some day in March.
    days = date(year, month, 1).toordinal() - _EPOCH + day - 1
    return days * 86400 + hour * 3600 + minute * 60 + second
