"""Reads limits, in Envoy's format and in Penstock's."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any

from penstock import limit_text
from penstock.durations import parse_duration
from penstock.errors import LimitError
from penstock.limit_options import ALGORITHMS
from penstock.limits import Limit
from penstock.rules.model import RuleLimit
from penstock.rules.problems import Place
from penstock.rules.reading.keywords import DEFAULTS, LIMIT, RATE_LIMIT, REPLACES
from penstock.rules.reading.tree import ListNode, ScalarNode, SyntaxNode, shown
from penstock.rules.reading.values import Fields, Reading, read_fields, read_list, refer

# In Envoy's service a limit is a fixed window from the epoch.
ENVOYS_ALGORITHM = "fixed_window"
# How long a slot of a `concurrency` is held if nobody releases it.
SLOT_LEASE = "30s"
_ON_FAILURE = ("on_failure", "share")
# Longer than any limit or option: long durations would take long to read.
_LONGEST_TEXT = 300
_QUOTED = re.compile(r"'[^']*'")
_NAME = re.compile(r"\w+")


class LimitReader:
    """Reads the limits of one file, with its ``defaults``.

    Files repeat few limits many times, so equal ones are shared.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._defaults: dict[str, Any] = {}
        # By text, or by amount and unit; with the text that names it.
        self._limits: dict[object, tuple[Limit, str]] = {}

    def set_defaults(self, node: SyntaxNode) -> None:
        fields = read_fields(self.reading, node, DEFAULTS, "'defaults'")
        if fields is not None:
            self._defaults = fields.values

    def rate_limit(self, node: SyntaxNode, rule_id: str) -> dict[str, Any]:
        """The fields of a `Rule` that a ``rate_limit`` sets, as far as it can be read."""
        fields = read_fields(self.reading, node, RATE_LIMIT, "'rate_limit'", "limits")
        if fields is None:
            return {}
        values = fields.values
        rule: dict[str, Any] = {}
        if "name" in values:
            rule["name"] = values["name"]
        if "replaces" in fields.nodes:
            rule["replaces"] = self._replaces(fields)
        if values.get("unlimited"):
            self._check_unlimited(fields)
            return {**rule, "unlimited": True}
        fields.require(self.reading, "unit", "requests_per_unit")
        amount, unit = values.get("requests_per_unit"), values.get("unit")
        if amount is None or unit is None:
            return rule
        if amount == 0:
            return {**rule, "closed": True, "closed_period_ns": parse_duration(unit, "unit")}
        known = self._limits.get((amount, unit))
        if known is None:
            options = {"algorithm": ENVOYS_ALGORITHM, **self._defaults}
            try:
                limit = Limit(amount, unit, **options)
            except LimitError as error:
                self.reading.error(fields.place("requests_per_unit"), f"{error}{self._blame({})}")
                return rule
            known = self._limits[amount, unit] = limit, str(limit)
        limit, text = known
        name = values.get("name") or f"{rule_id} {text}"
        return {**rule, "limits": (RuleLimit(limit, name, fields.node.place, envoy=True),)}

    def _check_unlimited(self, fields: Fields) -> None:
        if "unit" in fields.nodes:
            self.reading.error(fields.place("unit"), "'unlimited' and 'unit': choose one")
        if "requests_per_unit" in fields.nodes:
            message = "'requests_per_unit' has no effect beside 'unlimited'"
            self.reading.warn(fields.place("requests_per_unit"), message)

    def _replaces(self, fields: Fields) -> frozenset[str]:
        names = set()
        for node in read_list(self.reading, fields.nodes["replaces"], "'replaces'"):
            entry = read_fields(self.reading, node, REPLACES, "an entry of 'replaces'")
            name = None if entry is None else entry.values.get("name")
            if name is None:
                continue
            if name == fields.values.get("name"):
                self.reading.error(node.place, f"{shown(name)} cannot replace itself")
            names.add(name)
        return frozenset(names)

    def limits(
        self, node: SyntaxNode, rule_id: str, what: str, may_be_empty: bool = False
    ) -> tuple[RuleLimit, ...]:
        """One limit or a list of them."""
        items = node.items if isinstance(node, ListNode) else [node]
        if not items and not may_be_empty:
            self.reading.error(node.place, f"{what} is an empty list")
        limits = [
            limit
            for item in items
            for each in self._each(item)
            if (limit := self._limit(each, rule_id)) is not None
        ]
        self.check_together(limits)
        return tuple(limits)

    def concurrency(self, fields: Fields, rule_id: str) -> tuple[RuleLimit, ...]:
        """The limit of a ``concurrency``: so many slots, each for at most the ``slot_lease``."""
        amount = fields.values.get("concurrency")
        if amount is None:
            return ()
        options = {name: self._defaults[name] for name in _ON_FAILURE if name in self._defaults}
        try:
            length = parse_duration(fields.values.get("slot_lease", SLOT_LEASE), "'slot_lease'")
            limit = Limit(amount, f"{length}ns", algorithm="sliding_log", **options)
        except LimitError as error:
            self.reading.error(fields.place("slot_lease"), str(error))
            return ()
        place = fields.place("concurrency")
        return (RuleLimit(limit, f"{rule_id} concurrency", place),)

    def check_together(self, limits: Sequence[RuleLimit]) -> None:
        """Limits that count together need different names."""
        if len(limits) < 2:
            return
        names: dict[str, Place] = {}
        same: dict[Limit, Place] = {}
        for limit in limits:
            if limit.name in names:
                first = refer(names[limit.name], limit.place)
                self.reading.error(
                    limit.place, f"the limit {shown(limit.name)} a second time: first at {first}"
                )
            elif limit.limit in same:
                first = refer(same[limit.limit], limit.place)
                self.reading.warn(limit.place, f"the same limit has another name at {first}")
            names.setdefault(limit.name, limit.place)
            same.setdefault(limit.limit, limit.place)

    def _each(self, node: SyntaxNode) -> list[SyntaxNode]:
        """The limits of one entry: a text may name several."""
        if isinstance(node, ScalarNode) and len(node.text) <= _LONGEST_TEXT:
            with contextlib.suppress(LimitError):  # reported when it is read
                texts = limit_text.split(node.text)
                if len(texts) > 1:
                    return [
                        ScalarNode(text, node.plain, node.line, node.column, node.source)
                        for text in texts
                    ]
        return [node]

    def _limit(self, node: SyntaxNode, rule_id: str) -> RuleLimit | None:
        if isinstance(node, ListNode):
            self.reading.error(node.place, "a limit must be a text or a mapping, not a list")
            return None
        name = None
        if isinstance(node, ScalarNode):
            if node.is_null:
                self.reading.error(node.place, "a limit is missing here")
                return None
            named = self._of_text(node)
        else:
            fields = read_fields(self.reading, node, LIMIT, "a limit")
            if fields is None or fields.values.get("limit") is None:
                return None
            name = fields.values.get("name")
            named = self._of_mapping(fields)
        if named is None:
            return None
        limit, text = named
        return RuleLimit(limit, name or f"{rule_id} {text}", node.place)

    def _of_text(self, node: ScalarNode) -> tuple[Limit, str] | None:
        known = self._limits.get(node.text)
        if known is not None:
            return known
        parts = self._read_text(node)
        if parts is None:
            return None
        amount, per, options = parts
        try:
            limit = Limit(amount, per, **{**self._defaults, **options})
        except LimitError as error:
            self.reading.error(node.place, f"{shown(node.text)}: {error}{self._blame(options)}")
            return None
        known = self._limits[node.text] = limit, str(limit)
        return known

    def _read_text(self, node: ScalarNode) -> tuple[int, str, dict[str, Any]] | None:
        if len(node.text) > _LONGEST_TEXT:
            message = f"a limit of {len(node.text)} characters: {shown(node.text)}"
            self.reading.error(node.place, message)
            return None
        try:
            return limit_text.read(node.text, ALGORITHMS)
        except LimitError as error:
            self.reading.error(node.place, str(error))
            return None

    def _of_mapping(self, fields: Fields) -> tuple[Limit, str] | None:
        node = fields.nodes["limit"]
        assert isinstance(node, ScalarNode)  # or it would have had no value
        extra = {name: value for name, value in fields.values.items() if name in _OPTIONS}
        for name in [name for name, value in extra.items() if len(str(value)) > _LONGEST_TEXT]:
            message = f"{name!r} has {len(extra.pop(name))} characters"
            self.reading.error(fields.place(name), message)
        wrong = [name for name in fields.nodes if name in _OPTIONS and name not in extra]
        parts = self._read_text(node)
        if "algorithm" in wrong or parts is None:
            return None  # the other options cannot be checked without it
        amount, per, options = parts
        for name in self._repeated(options, extra):
            wrong.append(name)
            del extra[name]
            message = f"{name!r} stands in the text {shown(node.text)}, too"
            self.reading.error(fields.place(name), message)
        if "tz" in extra or "align" in extra:
            options.setdefault("algorithm", ENVOYS_ALGORITHM)
        limit = self._try_all(amount, per, options, extra, fields)
        return None if limit is None or wrong else (limit, str(limit))

    @staticmethod
    def _repeated(options: dict[str, Any], extra: dict[str, Any]) -> list[str]:
        """Options in both the text and the mapping. The same algorithm may be in both."""
        repeated = options.keys() & extra.keys()
        if "algorithm" in repeated and options["algorithm"] == extra["algorithm"]:
            repeated.discard("algorithm")
        return sorted(repeated)

    def _try_all(
        self, amount: int, per: str, options: dict[str, Any], extra: dict[str, Any], fields: Fields
    ) -> Limit | None:
        """The limit, or None. Reports every option that is wrong, not only the first."""
        is_right = True
        while True:
            try:
                limit = Limit(amount, per, **{**self._defaults, **options, **extra})
            except LimitError as error:
                is_right = False
                name = _option_of(error, fields)
                blame = self._blame({**options, **extra})
                self.reading.error(fields.place(name), f"{error}{blame}")
                if name not in extra or name == "algorithm":
                    return None
                del extra[name]
            else:
                return limit if is_right else None

    def _blame(self, options: dict[str, Any]) -> str:
        """Point to 'defaults' if the algorithm comes from there: it may be far away."""
        if "algorithm" in options or "algorithm" not in self._defaults:
            return ""
        return f" ({self._defaults['algorithm']} is from 'defaults')"


_OPTIONS = frozenset(LIMIT.keywords) - {"limit", "name"}


def _option_of(error: LimitError, fields: Fields) -> str:
    """The option that an error of `Limit` is about: the first that it names."""
    for name in _NAME.findall(_QUOTED.sub("", str(error))):
        if name in fields.nodes and name in _OPTIONS:
            return str(name)
    return "align" if "align" in fields.nodes and "calendar" in str(error) else "limit"
