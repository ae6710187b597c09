"""The fast way: the matcher once for each distinct value, the algorithms on dense rows."""

from __future__ import annotations

import ipaddress
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from penstock.algorithms import build
from penstock.gate import Gate
from penstock.integrations.deciding.paths import AmbiguousPath
from penstock.limits import Limit
from penstock.replay.deciding._decider import Counter, Decider, Shape, Tally, flag_values
from penstock.replay.deciding.log_request import LogRequest, is_asset, text_of
from penstock.replay.deciding.settings import ReplayClock, Settings
from penstock.replay.deciding.slow import name_of, text_reader
from penstock.replay.deciding.tallies import Outcome, RuleTally
from penstock.replay.deciding.value_columns import Column, column_of
from penstock.replay.reading.blocks import Block
from penstock.replay.reading.requests import Requests
from penstock.rules.deciding.check import only_domain
from penstock.rules.deciding.compiled import Counted, holds, is_in_split
from penstock.rules.matching.match import Match
from penstock.rules.matching.tree import MatchNode
from penstock.rules.model import Domain, Rule, RuleSet
from penstock.rules.walk import limits_of, rules_of

NOTHING = -1
ONE_ENTRY, BY_VALUE, BY_VALUES = 1, 2, 3
SHADOW, CLOSED, DENIED, SCHEDULED, UNCOUNTED = 1, 2, 4, 8, 16
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


class FastReplay:
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
        self._rules: list[tuple[Rule, Tally, dict[str, int]]] = []
        self._rule_numbers: dict[int, int] = {}
        self._limit_sets: dict[int, int] = {}
        self._counters: dict[tuple[int, Limit], Any] = {}
        self._schedules: list[Rule] = []
        self._schedule_numbers: dict[int, int] = {}
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

    # What the compiled part asks ------------------------------------------------------------

    def child(self, shape: Any, node: int, level: int, value: int) -> int:
        """The node that a value leads to."""
        tree = self._nodes[shape.number][node]
        branch = tree.branches.get(shape.keys[level])
        if branch is None:
            return NOTHING
        return self._node(shape, level, branch.choose(self._text(shape, level, value)))

    def _text(self, shape: Any, level: int, value: int) -> str:
        return self._columns[shape.keys[level]].values.text(value)

    def _node(self, shape: Any, level: int, tree: MatchNode | None) -> int:
        if tree is None:
            return NOTHING
        nodes = self._nodes[shape.number]
        for number, known in enumerate(nodes):
            if known is tree:
                return number
        nodes.append(tree)
        number = int(shape.add_node(-2))
        if level + 1 < len(shape.keys):
            self._constant_child(shape, number, shape.keys[level + 1], level + 1)
        return number

    def _constant_child(self, shape: Any, node: int, key: str, level: int = 0) -> None:
        """Where every value leads to the same node, no value need be looked at."""
        tree = self._nodes[shape.number][node]
        branch = tree.branches.get(key)
        if branch is None:
            shape.set_constant(node, NOTHING)
        elif not branch.exact and branch.wildcards is None:
            shape.set_constant(node, self._node(shape, level, branch.any))

    def may_deny(self, shape: Any, node: int) -> bool:
        """Whether a deny list may refuse what ends here without a rule."""
        return bool(self._nodes[shape.number][node].lists)

    def ending(self, shape: Any, node: int) -> None:
        """Say how descriptors that end at a node become entries."""
        tree = self._nodes[shape.number][node]
        rule = tree.rule
        if rule is None and not tree.lists:
            shape.ends(node, ONE_ENTRY, NOTHING)
            return
        positions = {index for index, _, _ in tree.vary} | {index for index, _ in tree.lists}
        plain = rule is not None and not rule.split and not rule.plans and not tree.lists
        if rule is None or rule.plans is not None:
            shape.ends(node, BY_VALUES)
        elif not positions:
            pairs = [(key, "-") for key in shape.keys]
            match = self._match(pairs, tree, rule)
            shape.ends(node, ONE_ENTRY, self._entry(match, pairs))
        elif len(positions) == 1 and plain:
            ((position, _, grouping),) = tree.vary
            values = self._columns[shape.keys[position]].values
            quick, texts, ipv6_bits = 0, None, 0
            if grouping is None or grouping.group is None:
                quick = 2
            elif grouping.group[0] == 32 and values.interner is not None:
                quick, texts, ipv6_bits = 1, values.interner, grouping.group[1]
            shape.ends(
                node, BY_VALUE, NOTHING, position, quick, texts, *self._treatment(rule), ipv6_bits
            )
        elif len(positions) == 1:
            shape.ends(node, BY_VALUE, NOTHING, positions.pop())
        else:
            shape.ends(node, BY_VALUES)

    def entry(self, shape: Any, node: int, values: Sequence[int]) -> int:
        """The entry for these values, by the matcher itself."""
        pairs = [
            (key, self._text(shape, level, value))
            for level, (key, value) in enumerate(zip(shape.keys, values, strict=True))
        ]
        match = self._matcher.match(pairs)
        if match is None:
            return NOTHING
        tree = self._nodes[shape.number][node]
        if match.rule is tree.rule and len(tree.vary) == 1 and not match.denied:
            alias = self._same_address(shape, node, tree, match, values)
            if alias is not None:
                return alias
        return self._entry(match, pairs)

    def _same_address(
        self, shape: Any, node: int, tree: MatchNode, match: Match, values: Sequence[int]
    ) -> int | None:
        """The entry of an address that is written in an unusual way: IPv4 as IPv6, a zone, ..."""
        ((position, _, grouping),) = tree.vary
        column = self._columns[shape.keys[position]].values
        if grouping is None or column.interner is None or tree.lists:
            return None
        rule = match.rule
        if rule.split or rule.plans or grouping.group is None or grouping.group[0] != 32:
            return None
        key = match.values[position]
        try:
            network = ipaddress.ip_network(key)
        except ValueError:
            return None
        if str(network) != key or network.prefixlen != grouping.group[network.version == 6]:
            return None
        if network.version == 4:
            number = column.interner.number(str(network.network_address).encode())
            return int(shape.entry_of_value(node, number, self._decider))
        packed = network.network_address.packed
        return int(shape.entry_of_ipv6(node, packed, values[position], self._decider))

    def in_force(self, schedule: int, now: int) -> int:
        """The limits of a rule with a schedule, at this moment."""
        rule = self._schedules[schedule]
        for period in rule.schedule:
            if holds(period, now):
                return self._limits(self._gate.compiled._counted[id(period.limits)])
        return self._limits(self._gate.compiled.own_limits(rule))

    # Entries --------------------------------------------------------------------------------

    def _match(self, pairs: Sequence[tuple[str, str]], tree: MatchNode, rule: Rule) -> Match:
        return tree.ready or tree.match(pairs, rule)

    def _rule(self, rule: Rule) -> int:
        number = self._rule_numbers.get(id(rule))
        if number is None:
            tally = Tally()
            number = self._rule_numbers[id(rule)] = self._decider.add_rule(tally, rule.cost)
            self._rules.append((rule, tally, {}))
        return number

    def _limits(self, counted: tuple[Counted, ...]) -> int:
        if not counted:
            return NOTHING
        number = self._limit_sets.get(id(counted))
        if number is None:
            counters = [self._counter(each) for each in counted]
            number = self._limit_sets[id(counted)] = self._decider.add_limits(counters)
        return number

    def _counter(self, counted: Counted) -> Any:
        """Sets of one rule that have the same limit count it together, as in a store."""
        of = id(counted.rule), counted.limit
        if of not in self._counters:
            self._counters[of] = Counter(build(counted.limit), self._now)
        return self._counters[of]

    def _treatment(self, rule: Rule) -> tuple[int, int, int]:
        """Number, limits and flags of a rule without plans, split or lists."""
        flags = SHADOW if rule.shadow else 0
        number = self._rule(rule)
        if rule.unlimited:
            return number, NOTHING, flags
        if rule.closed:
            return number, NOTHING, flags | CLOSED
        if rule.schedule:
            schedule = self._schedule_numbers.get(id(rule))
            if schedule is None:
                schedule = self._schedule_numbers[id(rule)] = self._decider.add_schedule()
                self._schedules.append(rule)
            return number, schedule, flags | SCHEDULED
        return number, self._limits(self._gate.compiled.own_limits(rule)), flags

    def _entry(self, match: Match, pairs: Sequence[tuple[str, str]]) -> int:
        rule = match.rule
        number = self._rule(rule)
        _, tally, rows = self._rules[number]
        row = rows.get(match.key)
        if row is None:
            row = rows[match.key] = tally.new_row()
        flags = SHADOW if rule.shadow else 0
        limits = NOTHING
        if match.denied:
            flags |= DENIED
        elif match.allowed:
            flags |= UNCOUNTED
        elif rule.plans is not None or (
            rule.split is not None and is_in_split(match.key, rule.split.salt, rule.split.percent)
        ):
            if not rule.unlimited:
                limits = self._limits(self._gate.compiled.counted(match, tuple(pairs), self._now))
        else:
            number, limits, flags = self._treatment(rule)
        entry = int(self._decider.add_entry(number, limits, row, flags))
        self._decider.names[entry] = name_of(
            [(key, value) for (key, _), value in zip(pairs, match.values, strict=False)]
        )
        return entry

    # Results --------------------------------------------------------------------------------

    def key_name(self, entry: int) -> str:
        *_, number, node, value = self._decider.entry(entry)
        if number < 0:
            name: str = self._decider.names[entry]
            return name
        shape = self._shapes[number]
        tree = self._nodes[shape.number][node]
        ((position, _, _),) = tree.vary
        pairs = [(key, "-") for key in shape.keys]
        pairs[position] = shape.keys[position], self._text(shape, position, value)
        assert tree.rule is not None
        match = tree.match(pairs, tree.rule)
        return name_of(list(zip(shape.keys, match.values, strict=True)))

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
