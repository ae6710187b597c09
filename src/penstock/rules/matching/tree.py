"""The steps of a domain, prepared for matching.

::

    MatchNode ── branches ── Branch ── exact ───── MatchNode    by value
    a step       by key                wildcards ─ MatchNode    in the order of the file
    or the top                         any ─────── MatchNode

What all requests at a step have in common is computed when the tree is built. If no value on the
path varies, that is the whole `Match`. The tree is immutable afterwards.

The key of a counter contains the domain and every pair::

    api|plan=free|user=42        domain | key = value | key = value
    api|ip=192.0.2.0/24          the network, where `group` says so
    api|path=/files/*            the pattern, with `share_threshold`
    api|user=a%7Cb               | = % and control characters inside a part: as %XX

A pair that is matched under the other name of its key (see `aliases.py`) is counted under the name
that the rules use.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.keys import descriptor_head, descriptor_part
from penstock.rules.lists import network_of
from penstock.rules.model import Domain, Rule, Step
from penstock.rules.wildcards import Wildcards

Pair = tuple[str, str]
Descriptor = Sequence[Pair]


class Match:
    """What applies to a descriptor.

    - ``rule``, ``step``: where it ended; ``steps``: the path there
    - ``key``: of the counter
    - ``values``: those in the key, in the order of the pairs
    - ``denied``, ``allowed``: by a list of a step on the path; never both
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
    """A step, or the top of a domain, with everything that its path determines."""

    __slots__ = ("branches", "lists", "ready", "rule", "steps", "tail", "values", "vary")

    def __init__(self, tail: str) -> None:
        self.rule: Rule | None = None
        self.steps: tuple[Step, ...] = ()
        # The key is a text and a value for each value that varies, and then the tail. `vary` has
        # the index of its pair, the text, and its step if that groups values.
        self.vary: tuple[tuple[int, str, Step | None], ...] = ()
        self.tail = tail
        self.values: tuple[str, ...] = ()  # "" where it varies
        # The steps on the path that have a list, with the index of their pair.
        self.lists: tuple[tuple[int, MatchNode], ...] = ()
        self.branches: dict[str, Branch] = _NO_BRANCHES
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
            # Most values need no escaping, which this check is quick to find out.
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
        # Patterns are here, too, by their own text, as in Envoy's service. So a value that looks
        # like a pattern cannot reach another step under the pattern's key.
        self.exact: dict[str, MatchNode] = {}
        self.wildcards: Wildcards[MatchNode] | None = None
        self.any: MatchNode | None = None

    def choose(self, value: str) -> MatchNode | None:
        node = self.exact.get(value)
        if node is None and self.wildcards is not None:
            node = self.wildcards.first(value)
        return self.any if node is None else node


_NO_BRANCHES: dict[str, Branch] = {}  # stays empty


def top_of(domain: Domain, names: tuple[str, str] | None = None) -> MatchNode:
    """The tree of a domain. Of ``names``, the steps have the first; the second means the same."""
    node = MatchNode(descriptor_part(domain.name))
    node.branches = branches(node, domain.steps)
    if names is not None:
        _add_name(node, *names)
    return node


def _add_name(node: MatchNode, name: str, other: str) -> None:
    """Let all branches of ``name`` be found under the ``other`` name, too."""
    nodes = [node]
    while nodes:
        level = nodes.pop().branches
        for branch in level.values():
            nodes += branch.exact.values()
            nodes += [] if branch.any is None else [branch.any]
        if name in level:
            level[other] = level[name]


def branches(above: MatchNode, steps: Sequence[Step]) -> dict[str, Branch]:
    """The level below a node, by key. Of two equal steps, the first one counts."""
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
    for key, key_patterns in patterns.items():
        out[key].wildcards = Wildcards(key_patterns)
    return out


def counted_as(step: Step, value: str) -> str:
    """What represents a value that matched ``step`` in the counter's key."""
    if step.share_threshold and step.value is not None:
        return step.value
    return value if step.group is None else network_of(value, step.group)
