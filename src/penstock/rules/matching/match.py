"""Matching: from a request's descriptor to the rule that applies, and its counter's key.

At each level, in this order: a step with this key and exactly this value; then steps with
this key and a ``*`` in their value, in the order of the file; then a step with this key and
no value. What was chosen is final. A rule applies at exactly its own depth.

The cost does not grow with the number of rules: see `tree.py` and `wildcards.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.rules.lists import ValueList
from penstock.rules.matching.trace import TraceStep, trace
from penstock.rules.matching.tree import Descriptor, Match, MatchNode, Pair, top_of
from penstock.rules.model import Domain, Rule, id_part

__all__ = ["Descriptor", "Match", "Matcher", "Pair"]


class Matcher:
    """Finds the rule of a domain that applies to a descriptor.

    It never changes, so that threads share it without a lock.
    """

    __slots__ = ("_top", "domain")

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._top = top_of(domain)

    def match(self, descriptor: Descriptor) -> Match | None:
        """The rule for exactly these pairs; None if nothing applies."""
        node = self._top
        for key, value in descriptor:
            branch = node.branches.get(key)
            if branch is None:
                return self._astray(node, descriptor)
            # This is `branch.choose(value)`; the call would cost as much as all of it.
            found = branch.exact.get(value)
            if found is None:
                if branch.wildcards is not None:
                    found = branch.wildcards.first(value)
                if found is None:
                    found = branch.any
                    if found is None:
                        return self._astray(node, descriptor)
            node = found
        if node.ready is not None:
            return node.ready
        if node.rule is None:
            return self._astray(node, descriptor)
        return node.match(descriptor, node.rule)

    def denies(self, descriptor: Descriptor) -> bool:
        """Whether a pair is on a ``deny`` list of the whole domain."""
        return _listed(self.domain.deny, descriptor)

    def allows(self, descriptor: Descriptor) -> bool:
        """Whether a pair is on an ``allow`` list of the whole domain. `denies` goes before."""
        return _listed(self.domain.allow, descriptor)

    def trace(self, descriptor: Descriptor) -> list[TraceStep]:
        """How `match` comes to its answer, level by level, for people."""
        return trace(self.domain, self._top, descriptor)

    def _astray(self, node: MatchNode, descriptor: Descriptor) -> Match | None:
        """The pairs lead to no rule. What a list on their way denies is refused all the same."""
        for index, listing in node.lists:
            step = listing.steps[-1]
            if step.deny is not None and descriptor[index][1] in step.deny:
                return listing.match(descriptor, step.rule or self._refusal(listing))
        return None

    def _refusal(self, node: MatchNode) -> Rule:
        """A rule for a step that has a list and no limits, to be known by."""
        path = [id_part(self.domain.name)]
        for step in node.steps:
            value = "" if step.value is None else f"={id_part(step.value)}"
            path.append(id_part(step.key) + value)
        return Rule("/".join(path), node.steps[-1].place, closed=True)


def _listed(lists: Mapping[str, ValueList], descriptor: Descriptor) -> bool:
    return bool(lists) and any(key in lists and value in lists[key] for key, value in descriptor)
