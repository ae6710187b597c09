"""Reads limits, in Envoy's words and in Penstock's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from penstock import limit_text
from penstock.durations import parse_duration
from penstock.errors import LimitError
from penstock.limit import ALGORITHMS, Limit
from penstock.rules.model import RuleLimit
from penstock.rules.problems import Place
from penstock.rules.reading.keywords import DEFAULTS, LIMIT, RATE_LIMIT, REPLACES
from penstock.rules.reading.tree import ListNode, ScalarNode, SyntaxNode, shown
from penstock.rules.reading.values import Fields, Reading, read_fields, read_list, refer

# In Envoy's service a limit is a fixed window from the epoch.
ENVOYS_ALGORITHM = "fixed_window"
# Far longer than any limit or option of one: reading durations takes long if they are.
_LONGEST_TEXT = 300
_QUOTED = re.compile(r"'[^']*'")
_NAME = re.compile(r"\w+")


class RateLimit:
    """What a ``rate_limit`` says."""

    __slots__ = ("closed", "closed_period_ns", "limit", "name", "replaces", "unlimited")

    def __init__(self) -> None:
        self.limit: RuleLimit | None = None
        self.unlimited = False
        self.closed = False
        self.closed_period_ns = 0
        self.name: str | None = None
        self.replaces: frozenset[str] = frozenset()


class LimitReader:
    """Reads the limits of one file, with its ``defaults``.

    Files repeat few limits many times, so each is made once and shared.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._defaults: dict[str, Any] = {}
        self._made: dict[object, tuple[Limit, str]] = {}

    def set_defaults(self, node: SyntaxNode) -> None:
        fields = read_fields(self._reading, node, DEFAULTS, "'defaults'")
        if fields is not None:
            self._defaults = fields.values

    def rate_limit(self, node: SyntaxNode, rule_id: str) -> RateLimit:
        """A ``rate_limit``, with what could be read of it if something is wrong."""
        rate_limit = RateLimit()
        fields = read_fields(self._reading, node, RATE_LIMIT, "'rate_limit'")
        if fields is None:
            return rate_limit
        values = fields.values
        rate_limit.name = values.get("name")
        if "replaces" in fields.nodes:
            rate_limit.replaces = self._replaces(fields)
        if values.get("unlimited"):
            rate_limit.unlimited = True
            self._check_unlimited(fields)
            return rate_limit
        fields.require(self._reading, "unit", "requests_per_unit")
        amount, unit = values.get("requests_per_unit"), values.get("unit")
        if amount is None or unit is None:
            return rate_limit
        if amount == 0:
            rate_limit.closed = True
            rate_limit.closed_period_ns = parse_duration(unit, "unit")
            return rate_limit
        made = self._of_unit(amount, unit, fields)
        if made is not None:
            limit, text = made
            rate_limit.limit = RuleLimit(
                limit, rate_limit.name or f"{rule_id} {text}", fields.node.place, envoy=True
            )
        return rate_limit

    def _of_unit(self, amount: int, unit: str, fields: Fields) -> tuple[Limit, str] | None:
        known = self._made.get((amount, unit))
        if known is None:
            options = {"algorithm": ENVOYS_ALGORITHM, **self._defaults}
            try:
                limit = Limit(amount, unit, **options)
            except LimitError as error:
                self._reading.error(fields.place("requests_per_unit"), f"{error}{self._blame({})}")
                return None
            known = self._made[amount, unit] = limit, str(limit)
        return known

    def _check_unlimited(self, fields: Fields) -> None:
        if "unit" in fields.nodes:
            self._reading.error(fields.place("unit"), "'unlimited' and 'unit': choose one")
        if "requests_per_unit" in fields.nodes:
            self._reading.warn(
                fields.place("requests_per_unit"),
                "'requests_per_unit' has no effect beside 'unlimited'",
            )

    def _replaces(self, fields: Fields) -> frozenset[str]:
        names = set()
        for node in read_list(self._reading, fields.nodes["replaces"], "'replaces'"):
            entry = read_fields(self._reading, node, REPLACES, "an entry of 'replaces'")
            name = None if entry is None else entry.values.get("name")
            if name is None:
                continue
            if name == fields.values.get("name"):
                self._reading.error(node.place, f"{shown(name)} cannot replace itself")
            names.add(name)
        return frozenset(names)

    def limits(
        self, node: SyntaxNode, rule_id: str, what: str, may_be_empty: bool = False
    ) -> tuple[RuleLimit, ...]:
        """One limit or a list of them."""
        items = node.items if isinstance(node, ListNode) else [node]
        if not items and not may_be_empty:
            self._reading.error(node.place, f"{what} is an empty list")
        limits = [limit for item in items if (limit := self._limit(item, rule_id)) is not None]
        self.check_together(limits)
        return tuple(limits)

    def check_together(self, limits: Sequence[RuleLimit]) -> None:
        """Limits that count together need names of their own."""
        if len(limits) < 2:
            return
        names: dict[str, Place] = {}
        same: dict[Limit, Place] = {}
        for limit in limits:
            if limit.name in names:
                first = refer(names[limit.name], limit.place)
                self._reading.error(
                    limit.place, f"the limit {shown(limit.name)} a second time: first at {first}"
                )
            elif limit.limit in same:
                first = refer(same[limit.limit], limit.place)
                self._reading.warn(limit.place, f"the same limit has another name at {first}")
            names.setdefault(limit.name, limit.place)
            same.setdefault(limit.limit, limit.place)

    def _limit(self, node: SyntaxNode, rule_id: str) -> RuleLimit | None:
        if isinstance(node, ListNode):
            self._reading.error(node.place, "a limit must be a text or a mapping, not a list")
            return None
        name = None
        if isinstance(node, ScalarNode):
            if node.is_null:
                self._reading.error(node.place, "a limit is missing here")
                return None
            made = self._of_text(node)
        else:
            fields = read_fields(self._reading, node, LIMIT, "a limit")
            if fields is None or fields.values.get("limit") is None:
                return None
            name = fields.values.get("name")
            made = self._of_mapping(fields)
        if made is None:
            return None
        limit, text = made
        return RuleLimit(limit, name or f"{rule_id} {text}", node.place)

    def _of_text(self, node: ScalarNode) -> tuple[Limit, str] | None:
        known = self._made.get(node.text)
        if known is not None:
            return known
        read = self._read_text(node)
        if read is None:
            return None
        amount, per, options = read
        try:
            limit = Limit(amount, per, **{**self._defaults, **options})
        except LimitError as error:
            self._reading.error(node.place, f"{shown(node.text)}: {error}{self._blame(options)}")
            return None
        self._made[node.text] = made = limit, str(limit)
        return made

    def _read_text(self, node: ScalarNode) -> tuple[int, str, dict[str, Any]] | None:
        if len(node.text) > _LONGEST_TEXT:
            self._reading.error(
                node.place, f"a limit of {len(node.text)} characters: {shown(node.text)}"
            )
            return None
        try:
            return limit_text.read(node.text, ALGORITHMS)
        except LimitError as error:
            self._reading.error(node.place, str(error))
            return None

    def _of_mapping(self, fields: Fields) -> tuple[Limit, str] | None:
        node = fields.nodes["limit"]
        assert isinstance(node, ScalarNode)  # or it would have had no value
        given = {name: value for name, value in fields.values.items() if name in _OPTIONS}
        for name in [name for name, value in given.items() if len(str(value)) > _LONGEST_TEXT]:
            self._reading.error(
                fields.place(name), f"{name!r} has {len(given.pop(name))} characters"
            )
        wrong = [name for name in fields.nodes if name in _OPTIONS and name not in given]
        read = self._read_text(node)
        if "algorithm" in wrong or read is None:
            return None  # whether the rest fits it cannot be said
        amount, per, options = read
        for name in self._said_twice(options, given):
            wrong.append(name)
            del given[name]
            self._reading.error(
                fields.place(name), f"{name!r} stands in the text {shown(node.text)}, too"
            )
        if "tz" in given or "align" in given:
            options.setdefault("algorithm", ENVOYS_ALGORITHM)
        limit = self._try_all(amount, per, options, given, fields)
        return None if limit is None or wrong else (limit, str(limit))

    @staticmethod
    def _said_twice(options: dict[str, Any], given: dict[str, Any]) -> list[str]:
        """An algorithm may be: that a text with ``tz`` means a fixed window can be spelt out."""
        twice = options.keys() & given.keys()
        if "algorithm" in twice and options["algorithm"] == given["algorithm"]:
            twice.discard("algorithm")
        return sorted(twice)

    def _try_all(
        self, amount: int, per: str, options: dict[str, Any], given: dict[str, Any], fields: Fields
    ) -> Limit | None:
        """The limit, if nothing is wrong; else tell of every option that is, not of one."""
        whole = True
        while True:
            together = {**self._defaults, **options, **given}
            try:
                limit = Limit(amount, per, **together)
            except LimitError as error:
                whole = False
                name = _option_of(error, fields)
                self._reading.error(
                    fields.place(name), f"{error}{self._blame({**options, **given})}"
                )
                if name not in given or name == "algorithm":
                    return None
                del given[name]
            else:
                return limit if whole else None

    def _blame(self, options: dict[str, Any]) -> str:
        """A limit can be wrong only because of an algorithm that stands far away."""
        if "algorithm" in options or "algorithm" not in self._defaults:
            return ""
        return f" ({self._defaults['algorithm']} is from 'defaults')"


_OPTIONS = frozenset(LIMIT.keywords) - {"limit", "name"}


def _option_of(error: LimitError, fields: Fields) -> str:
    """The option that an error of `Limit` is about: the first of these that it names."""
    for name in _NAME.findall(_QUOTED.sub("", str(error))):
        if name in fields.nodes and name in _OPTIONS:
            return str(name)
    return "align" if "align" in fields.nodes and "calendar" in str(error) else "limit"
