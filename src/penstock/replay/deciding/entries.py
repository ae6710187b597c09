"""Entries: what applies to a descriptor, as the compiled part asks for it.

`Shape` walks the tree of the matcher, and `Decider` decides. What they do not know yet they ask
here, once for each value. The answers are those of the matcher itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from penstock.algorithms import build
from penstock.gate import Gate
from penstock.limits import Limit
from penstock.replay.deciding._decider import Counter, Decider, Tally
from penstock.replay.deciding.slow import name_of
from penstock.replay.deciding.value_columns import Column
from penstock.rules.deciding.compiled import Counted, holds, is_in_split
from penstock.rules.matching.match import Match, Matcher
from penstock.rules.matching.tree import MatchNode
from penstock.rules.model import Rule

NOTHING = -1
ONE_ENTRY, BY_VALUE, BY_VALUES = 1, 2, 3
SHADOW, CLOSED, DENIED, SCHEDULED, UNCOUNTED = 1, 2, 4, 8, 16


class Entries:
    """From nodes of the matcher's tree to rules, limits and rows of keys."""

    _now: int
    _gate: Gate
    _matcher: Matcher
    _decider: Decider
    _columns: dict[str, Column]
    _shapes: list[Any]
    _nodes: list[list[MatchNode]]

    def begin(self) -> None:
        """Nothing was asked yet."""
        self._rules: list[tuple[Rule, Tally, dict[str, int]]] = []
        self._rule_numbers: dict[int, int] = {}
        self._limit_sets: dict[int, int] = {}
        self._counters: dict[tuple[int, Limit], Any] = {}
        self._schedules: list[Rule] = []
        self._schedule_numbers: dict[int, int] = {}

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
