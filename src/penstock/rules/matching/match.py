"""Matching: from a request's descriptor to the rule that applies, and its counter's key.

Each level tries, in this order: a step with this key and exactly this value; steps with this key
and a ``*`` in their value, in the order of the file; a step with this key and no value. The choice
is final. A rule applies at exactly its own depth.

The cost does not grow with the number of rules: see `tree.py` and `wildcards.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.rules.aliases import alias_for, gives_both, lists_by_name
from penstock.rules.lists import ValueList
from penstock.rules.matching.trace import TraceStep, trace
from penstock.rules.matching.tree import Descriptor, Match, MatchNode, Pair, top_of
from penstock.rules.model import Domain, Rule, id_part
from penstock.rules.walk import steps_of

__all__ = ["Descriptor", "Match", "Matcher", "Pair"]


class Matcher:
    """Finds the rule of a domain that applies to a descriptor. It is immutable.

    ``names`` are the name of a key that the rules use and its other name, if there are any: see
    `aliases.py`. ``allow`` and ``deny`` are the lists of the whole domain, by every name.
    """

    __slots__ = ("_top", "allow", "deny", "domain", "names")

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.names = alias_for(step.key for step in steps_of(domain))
        self.allow = lists_by_name(domain.allow)
        self.deny = lists_by_name(domain.deny)
        self._top = top_of(domain, self.names)

    def match(self, descriptor: Descriptor) -> Match | None:
        """The rule for exactly these pairs; None if nothing applies."""
        node = self._top
        for key, value in descriptor:
            branch = node.branches.get(key)
            if branch is None:
                return self._unmatched(node, descriptor)
            # This is `branch.choose(value)`, inlined: the call would double the cost.
            child = branch.exact.get(value)
            if child is None:
                if branch.wildcards is not None:
                    child = branch.wildcards.first(value)
                if child is None:
                    child = branch.any
                    if child is None:
                        return self._unmatched(node, descriptor)
            node = child
        if node.ready is not None:
            return node.ready
        if node.rule is None:
            return self._unmatched(node, descriptor)
        return node.match(descriptor, node.rule)

    def match_each(self, descriptors: Sequence[Descriptor]) -> list[Match | None]:
        """`match` for all descriptors of a request: if it gives both names, each means itself."""
        names = self.names
        if names is None or len(descriptors) < 2 or not gives_both(descriptors, names):
            return [self.match(descriptor) for descriptor in descriptors]
        return [
            None if any(key == names[1] for key, _ in descriptor) else self.match(descriptor)
            for descriptor in descriptors
        ]

    @property
    def top(self) -> MatchNode:
        """The tree, for those who walk it themselves."""
        return self._top

    def denies(self, descriptor: Descriptor) -> bool:
        """Whether a pair is on a ``deny`` list of the whole domain."""
        return _listed(self.deny, descriptor)

    def allows(self, descriptor: Descriptor) -> bool:
        """Whether a pair is on an ``allow`` list of the whole domain. `denies` has precedence."""
        return _listed(self.allow, descriptor)

    def trace(self, descriptor: Descriptor) -> list[TraceStep]:
        """Explains the answer of `match`, level by level, for people."""
        return trace(self.domain, self._top, descriptor, self.names)

    def _unmatched(self, node: MatchNode, descriptor: Descriptor) -> Match | None:
        """The pairs lead to no rule, but a deny list on their path may still refuse them."""
        for index, listing in node.lists:
            step = listing.steps[-1]
            if step.deny is not None and descriptor[index][1] in step.deny:
                return listing.match(descriptor, step.rule or self._refusal(listing))
        return None

    def _refusal(self, node: MatchNode) -> Rule:
        """A rule for a step with a deny list and no limits, so that the refusal has a name."""
        path = [id_part(self.domain.name)]
        for step in node.steps:
            value = "" if step.value is None else f"={id_part(step.value)}"
            path.append(id_part(step.key) + value)
        return Rule("/".join(path), node.steps[-1].place, closed=True)


def _listed(lists: Mapping[str, ValueList], descriptor: Descriptor) -> bool:
    return bool(lists) and any(key in lists and value in lists[key] for key, value in descriptor)
