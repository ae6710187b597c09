"""Reads limits for some requests only: ``plans``, ``split`` and ``schedule``."""

from __future__ import annotations

import re
from datetime import time

from penstock.rules.model import Period, Plans, RuleLimit, Split
from penstock.rules.problems import nearest
from penstock.rules.reading.keywords import DAYS, PERIOD, PLANS, SPLIT, TIME
from penstock.rules.reading.limits import LimitReader
from penstock.rules.reading.tree import MappingNode, ScalarNode, SyntaxNode, shown
from penstock.rules.reading.values import Fields, Reading, read_fields, read_list

_TIME = re.compile(TIME, re.A)
_MIDNIGHT = "24:00"
_DAY_NUMBERS = {
    **{name: number for number, name in enumerate(DAYS)},
    **{name[:3]: number for number, name in enumerate(DAYS)},
}
_EVERY_DAY = frozenset(range(7))


def read_plans(
    limits: LimitReader, node: SyntaxNode, rule_id: str, keys: tuple[str, ...]
) -> Plans | None:
    """``keys`` are those of the descriptor's pairs: one of them names the tier."""
    reading = limits.reading
    fields = read_fields(reading, node, PLANS, "'plans'")
    if fields is None:
        return None
    by, default = fields.values.get("by"), fields.values.get("default")
    if by is not None and by not in keys:
        hint = f"{nearest(by, keys)}: use {', '.join(shown(key) for key in keys)}"
        message = f"no pair of this descriptor has the key {shown(by)}{hint}"
        reading.error(fields.place("by"), message)
    tiers = _tiers(limits, fields, rule_id)
    if default is not None and tiers and default not in tiers:
        message = f"no tier has the name {shown(default)}{nearest(default, tiers)}"
        reading.error(fields.place("default"), message)
    return Plans(by or "", tiers, default)


def _tiers(limits: LimitReader, fields: Fields, rule_id: str) -> dict[str, tuple[RuleLimit, ...]]:
    node = fields.nodes.get("tiers")
    if node is None or node.is_null:
        return {}
    if not isinstance(node, MappingNode):
        limits.reading.error(node.place, f"'tiers' must be a mapping, not {node}")
        return {}
    if not node.pairs:
        limits.reading.error(node.place, "'tiers' must not be empty")
    # An empty list is a tier without limits.
    return {
        name.text: limits.limits(inner, rule_id, f"the tier {shown(name.text)}", may_be_empty=True)
        for name, inner in node.pairs
    }


def read_split(limits: LimitReader, node: SyntaxNode, rule_id: str) -> Split | None:
    fields = read_fields(limits.reading, node, SPLIT, "'split'")
    if fields is None:
        return None
    percent, salt = fields.values.get("percent", 0.0), fields.values.get("salt", rule_id)
    return Split(percent, _limits(limits, fields, rule_id), salt)


def read_schedule(limits: LimitReader, node: SyntaxNode, rule_id: str) -> tuple[Period, ...]:
    items = read_list(limits.reading, node, "'schedule'")
    periods = [_period(limits, item, rule_id) for item in items]
    return tuple(period for period in periods if period is not None)


def _period(limits: LimitReader, node: SyntaxNode, rule_id: str) -> Period | None:
    reading = limits.reading
    fields = read_fields(reading, node, PERIOD, "a period of 'schedule'")
    if fields is None:
        return None
    start, end = _time(reading, fields, "from"), _time(reading, fields, "to")
    # Python has no 24:00. Midnight means the same: an end that is not after the start is on the
    # next day, and if both are midnight the period is a whole day.
    if start is not None and start == end and fields.values["to"] != _MIDNIGHT:
        message = "'from' and 'to' are the same: a whole day is from \"00:00\" to \"24:00\""
        reading.error(fields.place("to"), message)
    zone = fields.values.get("tz", "UTC")
    if not reading.is_zone(zone):
        reading.error(fields.place("tz"), f"unknown time zone {shown(zone)}")
    days, own_limits = _days(reading, fields), _limits(limits, fields, rule_id)
    return Period(days, start or time(), end or time(), zone, own_limits)


def _time(reading: Reading, fields: Fields, name: str) -> time | None:
    text = fields.values.get(name)
    if text is None:
        return None
    if text == _MIDNIGHT and name == "to":
        return time()
    if not _TIME.fullmatch(text):
        most = ' at most "24:00",' if name == "to" else ""
        message = f'{name!r} must be a time such as "09:00",{most} not {shown(text)}'
        reading.error(fields.place(name), message)
        return None
    return time(int(text[:2]), int(text[3:]))


def _days(reading: Reading, fields: Fields) -> frozenset[int]:
    node = fields.nodes.get("days")
    if node is None:
        return _EVERY_DAY
    items = read_list(reading, node, "'days'")
    if not items and not isinstance(node, ScalarNode | MappingNode):
        reading.error(node.place, "'days' must not be empty")
    days = set()
    for item in items:
        number = _DAY_NUMBERS.get(item.text.lower()) if isinstance(item, ScalarNode) else None
        if number is None:
            reading.error(item.place, f"unknown day {item}: use mon, tue, wed, thu, fri, sat, sun")
        else:
            days.add(number)
    return frozenset(days)


def _limits(limits: LimitReader, fields: Fields, rule_id: str) -> tuple[RuleLimit, ...]:
    node = fields.nodes.get("limits")
    if node is None or node.is_null:
        return ()
    return limits.limits(node, rule_id, "'limits'")
