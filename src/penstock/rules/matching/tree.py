"""The steps of a domain, made ready for matching.

::

    MatchNode ── branches ── Branch ── exact ───── MatchNode    by value
    a step       by key                wildcards ─ MatchNode    in the order of the file
    or the top                         any ─────── MatchNode

What is the same for every request that comes to a step is worked out when the tree is made;
where no value on the way varies, that is the whole `Match`. Nothing changes afterwards.

The key of a counter holds the domain and every pair::

    api|plan=free|user=42        domain | key = value | key = value
    api|ip=192.0.2.0/24          the network, where `group` says so
    api|path=/files/*            the pattern, with `share_threshold`
    api|user=a%7Cb               | = % and control characters inside a part: as %XX
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.keys import descriptor_head, descriptor_part
from penstock.rules.lists import network_of
from penstock.rules.model import Domain, Rule, Step
from penstock.rules.wildcards import Wildcards

Pair = tuple[str, str]
Descriptor = Sequence[Pair]


class Match:
    """What applies to a descriptor.

    - ``rule``, ``step``: where it ended; ``steps``: the way there
    - ``key``: the counter's
    - ``values``: those in the key, in the order of the pairs
    - ``denied``, ``allowed``: a list of a step on the way says so; never both
    """

    __slots__ = ("allowed", "denied", "key", "rule", "step", "steps", "values")

    def __init__(
        self,
        rule: Rule,
        steps: tuple[Step, ...],
        key: str,
        values: tuple[str, ...],
        allowed: bool = False,
        denied: bool = False,
    ) -> None:
        self.rule = rule
        self.step = steps[-1]
        self.steps = steps
        self.key = key
        self.values = values
        self.allowed = allowed
        self.denied = denied

    def __repr__(self) -> str:
        listed = " denied" if self.denied else " allowed" if self.allowed else ""
        return f"<Match {self.rule.id} key={self.key!r}{listed}>"


class MatchNode:
    """A step, or the top of a domain, with all that its path decides."""

    __slots__ = ("branches", "lists", "ready", "rule", "steps", "tail", "values", "vary")

    def __init__(self, tail: str) -> None:
        self.rule: Rule | None = None
        self.steps: tuple[Step, ...] = ()
        # The key: for each value that varies a text and the value, and then the tail.
        # In `vary`: the index of its pair, the text, and its step where that changes it.
        self.vary: tuple[tuple[int, str, Step | None], ...] = ()
        self.tail = tail
        self.values: tuple[str, ...] = ()  # "" for those that vary
        # The steps on the way that have a list, each with the index of its pair.
        self.lists: tuple[tuple[int, MatchNode], ...] = ()
        self.branches: Mapping[str, Branch] = _NO_BRANCHES
        self.ready: Match | None = None  # the match, if it is the same for every request

    def below(self, step: Step) -> MatchNode:
        """The node of a step of the next level."""
        index, head = len(self.steps), descriptor_head(self.tail, step.key)
        if step.value is None or (step.is_wildcard and not step.share_threshold):
            value, node = "", MatchNode("")
            node.vary = (*self.vary, (index, head, step if step.group else None))
        else:
            value = counted_as(step, step.value)
            node = MatchNode(head + descriptor_part(value))
            node.vary = self.vary
        node.rule = step.rule
        node.steps = (*self.steps, step)
        node.values = (*self.values, value)
        node.lists = (*self.lists, (index, node)) if step.allow or step.deny else self.lists
        if node.rule is not None and not node.vary and not node.lists:
            node.ready = Match(node.rule, node.steps, node.tail, node.values)
        if step.children:
            node.branches = branches(node, step.children)
        return node

    def match(self, descriptor: Descriptor, rule: Rule) -> Match:
        """The match of a descriptor whose pairs lead here."""
        values = list(self.values)
        key = ""
        for index, head, grouping in self.vary:
            value = descriptor[index][1]
            if grouping is not None:
                value = counted_as(grouping, value)
            values[index] = value
            # Most values have nothing to escape, and of most of those this tells it at once.
            key += head + (value if value.isalnum() else descriptor_part(value))
        key += self.tail
        allowed = denied = False
        for index, node in self.lists:
            value, step = descriptor[index][1], node.steps[-1]
            denied = denied or (step.deny is not None and value in step.deny)
            allowed = allowed or (step.allow is not None and value in step.allow)
        return Match(rule, self.steps, key, tuple(values), allowed and not denied, denied)


class Branch:
    """The steps of one level that have one key."""

    __slots__ = ("any", "exact", "wildcards")

    def __init__(self) -> None:
        # A pattern is found here, too, by its own text, as in Envoy's service. So a value
        # that looks like a pattern cannot come to another step under the pattern's key.
        self.exact: dict[str, MatchNode] = {}
        self.wildcards: Wildcards[MatchNode] | None = None
        self.any: MatchNode | None = None

    def choose(self, value: str) -> MatchNode | None:
        found = self.exact.get(value)
        if found is None and self.wildcards is not None:
            found = self.wildcards.first(value)
        return self.any if found is None else found


_NO_BRANCHES: Mapping[str, Branch] = {}


def top_of(domain: Domain) -> MatchNode:
    node = MatchNode(descriptor_part(domain.name))
    node.branches = branches(node, domain.steps)
    return node


def branches(above: MatchNode, steps: Sequence[Step]) -> dict[str, Branch]:
    """The level below a node, by key. Of two steps that say the same, the first one counts."""
    out: dict[str, Branch] = {}
    patterns: dict[str, list[tuple[str, MatchNode]]] = {}
    for step in steps:
        node = above.below(step)
        branch = out.get(step.key)
        if branch is None:
            branch = out[step.key] = Branch()
        if step.value is None:
            branch.any = branch.any or node
        else:
            branch.exact.setdefault(step.value, node)
            if step.is_wildcard:
                patterns.setdefault(step.key, []).append((step.value, node))
    for key, those in patterns.items():
        out[key].wildcards = Wildcards(those)
    return out


def counted_as(step: Step, value: str) -> str:
    """What stands in the counter's key for a value that matched ``step``."""
    if step.share_threshold and step.value is not None:
        return step.value
    return value if step.group is None else network_of(value, step.group)
