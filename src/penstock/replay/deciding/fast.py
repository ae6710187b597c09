"""The fast way: the matcher once for each distinct value, the algorithms on dense rows."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from penstock.gate import Gate
from penstock.integrations.deciding.paths import AmbiguousPath
from penstock.replay.deciding._decider import Decider, Shape, Tally, flag_values
from penstock.replay.deciding.entries import Entries
from penstock.replay.deciding.log_request import LogRequest, is_asset, text_of
from penstock.replay.deciding.settings import ReplayClock, Settings
from penstock.replay.deciding.slow import text_reader
from penstock.replay.deciding.tallies import Outcome, RuleTally
from penstock.replay.deciding.value_columns import Column, column_of
from penstock.replay.reading.blocks import Block
from penstock.replay.reading.requests import Requests
from penstock.rules.deciding.check import only_domain
from penstock.rules.matching.tree import MatchNode
from penstock.rules.model import Domain, RuleSet
from penstock.rules.walk import limits_of, rules_of

_ON_ALLOW_LIST, _ON_DENY_LIST, _UNCLEAR_PATH = 1, 2, 3
_MOST_SHAPES, _MOST_LEVELS, _MOST_LIMITS = 64, 16, 64


def why_slow(gate: Gate, domain: str, shapes: Sequence[tuple[str, ...]], cost: str | None) -> str:
    """Why rules cannot be decided the fast way; "" if they can."""
    if domain not in gate.compiled.independent_domains:
        return "a rule replaces the limits of another"
    if len(shapes) > _MOST_SHAPES or any(len(shape) > _MOST_LEVELS for shape in shapes):
        return "there are many shapes of descriptors"
    most = 0
    for rule in rules_of(gate.rules.domains[domain]):
        if rule.quota:
            return f"{rule.id} is a quota"
        if rule.concurrency:
            return f"{rule.id} has a concurrency"
        sets = [limits for _, limits in limits_of(rule)]
        if cost and any(limit.envoy for limits in sets for limit in limits):
            return f"{rule.id} books debits as Envoy does"
        if any(len({limit.limit for limit in limits}) < len(limits) for limits in sets):
            return f"{rule.id} has one limit twice"
        most = max(most, *(len(limits) for limits in sets))
    return "a rule has many limits" if most * len(shapes) > _MOST_LIMITS else ""


class FastReplay(Entries):
    """Decides on blocks. Its `Shape` and `Decider` ask it what they do not know yet."""

    way = "fast"

    def __init__(self, rules: RuleSet, requests: Requests, settings: Settings) -> None:
        self._requests = requests
        self._settings = settings
        self._clock = ReplayClock()
        self._gate = settings.gate(rules, self._clock)
        self._descriptors = settings.descriptors(self._gate)
        self._domain_name = only_domain(self._gate.compiled, settings.domain)
        self._matcher = self._gate.matchers[self._domain_name]
        self.shapes, self._dimensions = self._descriptors.in_force()
        self.names = list(self._dimensions)
        self._columns: dict[str, Column] = {}
        self._started = False

    @property
    def domain(self) -> Domain:
        return self._matcher.domain

    def start(self, now: int) -> None:
        """Begin: limits come into force at the time of the first request."""
        self._now = now
        self._started = True
        self._decider = Decider(self)
        self.begin()
        for rule in rules_of(self.domain):
            self._rule(rule)
        own = self._settings.is_own
        for name, dimension in self._dimensions.items():
            self._columns[name] = column_of(
                self._requests, name, dimension, self._settings.trust, own
            )
        self._order = list(self._columns)
        self._nodes: list[list[MatchNode]] = []
        self._shapes: list[Any] = []
        for keys in self.shapes:
            shape = Shape(self, len(self._shapes), keys, [self._order.index(key) for key in keys])
            self._shapes.append(shape)
            self._nodes.append([self._matcher.top])
            self._constant_child(shape, 0, keys[0])
        self._listed = {
            key: array("b") for key in {*self._matcher.allow, *self._matcher.deny}
            if key in self._columns
        }  # fmt: skip
        self._unclear: dict[tuple[int, ...], bool] = {}
        words, numbers = self._requests.words, self._requests.numbers
        self._agent = words.index("header:user-agent") if "header:user-agent" in words else -1
        self._target = words.index("target") if "target" in words else -1
        self._status = numbers.index("status") if "status" in numbers else -1
        cost = self._settings.cost
        self._cost = numbers.index(cost) if cost else -1
        self._assets = array("b", [0])

    @property
    def bytes(self) -> int:
        """Memory for keys."""
        return self._decider.bytes if self._started else 0

    def feed(self, block: Block) -> array[int]:
        """Decide on a block; what became of each request."""
        matched = self.match(block)
        return self.decide(block, matched)

    def match(self, block: Block) -> list[array[int]]:
        """For each shape, the entries of the requests."""
        if not self._started:
            self.start(block.times[0])
        self._values = [column.of(block) for column in self._columns.values()]
        matched = []
        for shape in self._shapes:
            out = array("i", bytes(4 * block.n))
            shape.match(self._values, block.n, out, self._decider)
            matched.append(out)
        return matched

    def decide(self, block: Block, matched: list[array[int]]) -> array[int]:
        out = array("b", bytes(block.n))
        if self._target >= 0:
            interner = self._requests.interners[self._target]
            for number in range(len(self._assets), len(interner)):
                self._assets.append(is_asset(interner.text(number)))
        self._decider.decide(
            block.times,
            block.n,
            matched,
            self._lists(block),
            block.numbers[self._cost] if self._cost >= 0 else None,
            block.words[self._agent] if self._agent >= 0 else None,
            block.words[self._target] if self._target >= 0 else None,
            self._assets,
            block.numbers[self._status] if self._status >= 0 else None,
            out,
        )
        return out

    def feed_rows(self, block: Block) -> array[int]:
        """Count a block; the row of each request's key by the last shape, or -1."""
        matched = self.match(block)
        self.decide(block, matched)
        return self.rows(matched[-1], block.n)

    def rows(self, matched: array[int], n: int) -> array[int]:
        """The rows of keys, for entries of one shape."""
        out = array("i", bytes(4 * n))
        self._decider.rows_of(matched, n, out)
        return out

    # Lists, and paths that are not clear ----------------------------------------------------

    def _lists(self, block: Block) -> array[int] | None:
        flags: array[int] | None = None
        for key, table in self._listed.items():
            column = self._values[self._order.index(key)]
            values = self._columns[key].values
            for number in range(len(table), max(column[: block.n], default=0) + 1):
                table.append(self._list_of(key, values.text(number)) if number else 0)
            flags = flags or array("b", bytes(block.n))
            flag_values(column, block.n, table, flags)
        for made in self._columns.values():
            ambiguous = made.flags(block)
            if ambiguous is None:
                continue
            unclear = array("b", bytes(block.n))
            if flag_values(ambiguous[0], block.n, ambiguous[1], unclear):
                flags = flags or array("b", bytes(block.n))
                self._mark_unclear(block, unclear, flags)
        return flags

    def _list_of(self, key: str, value: str) -> int:
        deny, allow = self._matcher.deny.get(key), self._matcher.allow.get(key)
        if deny is not None and value in deny:
            return _ON_DENY_LIST
        return _ON_ALLOW_LIST if allow is not None and value in allow else 0

    def _mark_unclear(self, block: Block, unclear: array[int], flags: array[int]) -> None:
        for at in range(block.n):
            if not unclear[at]:
                continue
            numbers = tuple([column[at] for column in block.words])
            if numbers not in self._unclear:
                self._unclear[numbers] = self._is_unclear(numbers)
            if self._unclear[numbers]:
                flags[at] = _UNCLEAR_PATH

    def _is_unclear(self, numbers: tuple[int, ...]) -> bool:
        requests = self._requests

        def read(name: str) -> str | None:
            if name not in requests.words:
                return None
            at = requests.words.index(name)
            raw = requests.interners[at].text(numbers[at])
            return text_of(raw, requests.kind, latin=name == "target")

        try:
            self._descriptors.of(LogRequest(read, self._settings.trust))
        except AmbiguousPath:
            return True
        return False

    # Results --------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        if not self._started:
            self.start(0)
        decider = self._decider
        agent = text_reader(self._requests, "header:user-agent")

        def key_reader(number: int, tally: Tally) -> Callable[[int], str]:
            entries: list[int] = []

            def name(row: int) -> str:
                if len(entries) < tally.keys:
                    entries[:] = decider.entry_of_row(number, tally.keys)
                return self.key_name(entries[row])

            return name

        return Outcome(
            allowed=decider.allowed,
            refused=decider.refused,
            ambiguous=decider.ambiguous,
            unmatched=decider.unmatched,
            way=self.way,
            rules=[
                RuleTally(rule, tally, key_reader(number, tally), agent)
                for number, (rule, tally, _) in enumerate(self._rules)
            ],
        )
