"""Explains why a rule matched, or why none did: level by level, for people.

::

    1. plan='free': exact, rules.yaml:3:5
       rules.yaml:9:5 plan: takes any value, but an exact value goes first
    2. user='42': any value, rules.yaml:6:9
       the rule api/plan=free/user applies
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.rules.aliases import lists_by_name
from penstock.rules.matching.tree import Descriptor, MatchNode, counted_as
from penstock.rules.model import Domain, Step
from penstock.rules.problems import did_you_mean
from penstock.rules.wildcards import Pattern

EXACT, WILDCARD, ANY, NOTHING = "exact", "wildcard", "any value", "nothing"

# A level may have a hundred thousand steps. So many others are shown, and so many names are
# compared with a misspelt one.
MOST_OTHERS = 10
MOST_NAMES = 1000


@dataclass(frozen=True, slots=True)
class Other:
    """Another step of the level, and why it was not chosen."""

    step: Step
    why: str

    def __str__(self) -> str:
        return f"{self.step.place} {_named(self.step)}: {self.why}"


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One level: the pair that was looked up, and the step that was chosen.

    ``how`` is ``"exact"``, ``"wildcard"``, ``"any value"`` or ``"nothing"``. ``others`` were not
    chosen, and ``more`` of them are not shown. ``notes`` describe the consequences.
    """

    depth: int
    key: str
    value: str
    how: str
    step: Step | None
    others: tuple[Other, ...]
    more: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        place = "" if self.step is None else f", {self.step.place}"
        lines = [f"{self.depth}. {self.key}={self.value!r}: {self.how}{place}"]
        lines += [str(other) for other in self.others]
        if self.more:
            lines.append(f"and {self.more} more")
        lines += self.notes
        return "\n   ".join(lines)


def trace(
    domain: Domain, top: MatchNode, descriptor: Descriptor, names: tuple[str, str] | None = None
) -> list[TraceStep]:
    """The path of ``descriptor`` down from ``top``, as far as it leads.

    Of ``names``, the rules use the first, and the second means the same.
    """
    out: list[TraceStep] = []
    node, level = top, domain.steps
    for depth, (key, value) in enumerate(descriptor, 1):
        branch = node.branches.get(key)
        chosen = None if branch is None else branch.choose(value)
        step = None if chosen is None else chosen.steps[-1]
        how = _how(step, value)
        in_rules = names[0] if names is not None and key == names[1] else key
        others = list(_others(level, in_rules, value, step, how))
        notes = [*_on_lists(domain, step, key, value)]
        if step is not None and step.key != key:
            notes.insert(0, f"{key!r} is another name of {step.key!r}")
        if chosen is None or step is None:
            notes += _dead_end(level, in_rules, value)
            notes.append("no rule applies" + ("; what was chosen above is final" * (depth > 1)))
            if depth < len(descriptor):
                notes.append(f"pairs after it, not looked up: {len(descriptor) - depth}")
        else:
            notes += _arrival(step, value, last=depth == len(descriptor))
        shown, more = tuple(others[:MOST_OTHERS]), max(0, len(others) - MOST_OTHERS)
        out.append(TraceStep(depth, key, value, how, step, shown, more, tuple(notes)))
        if chosen is None or step is None:
            break
        node, level = chosen, step.children
    return out


def _how(step: Step | None, value: str) -> str:
    if step is None:
        return NOTHING
    if step.value is None:
        return ANY
    return EXACT if step.value == value else WILDCARD


def _others(
    level: Sequence[Step], key: str, value: str, chosen: Step | None, how: str
) -> Iterator[Other]:
    """The other steps with this key, beginning with those that match the value."""
    first = "an exact value" if how == EXACT else "a wildcard"
    rest = []
    for step in level:
        if step.key != key or step is chosen:
            continue
        if step.value is None:
            yield Other(step, f"takes any value, but {first} goes first")
        elif not step.is_wildcard:
            rest.append(Other(step, "is another value"))
        elif not Pattern(step.value, 0, None).matches(value):
            rest.append(Other(step, "does not fit"))
        elif how == EXACT:
            yield Other(step, "fits, but an exact value goes first")
        else:
            yield Other(step, "fits, but comes later in the file")
    yield from rest


def _on_lists(domain: Domain, step: Step | None, key: str, value: str) -> Iterator[str]:
    deny, allow = lists_by_name(domain.deny), lists_by_name(domain.allow)
    if key in deny and value in deny[key]:
        yield f"{value!r} is on the deny list of the domain: refused"
    if key in allow and value in allow[key]:
        yield f"{value!r} is on the allow list of the domain: not counted, unless denied"
    if step is not None and step.deny is not None and value in step.deny:
        yield f"{value!r} is on the deny list of this step: refused"
    if step is not None and step.allow is not None and value in step.allow:
        yield f"{value!r} is on the allow list of this step: not counted, unless denied"


def _dead_end(level: Sequence[Step], key: str, value: str) -> Iterator[str]:
    same = [step for step in level if step.key == key]
    if same:
        values = [step.value for step in same[:MOST_NAMES] if step.value is not None]
        yield f"no step {key!r} takes this value{did_you_mean(value, values)}"
    elif level:
        keys = list(dict.fromkeys(step.key for step in level))[:MOST_NAMES]
        shown = ", ".join(map(repr, keys[:MOST_OTHERS])) + (", ..." if keys[MOST_OTHERS:] else "")
        yield f"no step has this key{did_you_mean(key, keys)}; there are: {shown}"
    else:
        yield "no steps are below: the descriptor is longer than the rules"


def _arrival(step: Step, value: str, *, last: bool) -> Iterator[str]:
    counted = counted_as(step, value)
    if counted != value:
        yield f"counted as {counted!r}"
    if not last:
        if step.rule is not None:
            yield f"the rule {step.rule.id} does not apply: the descriptor goes on"
    elif step.rule is not None:
        yield f"the rule {step.rule.id} applies"
    elif step.children:
        below = ", ".join(dict.fromkeys(repr(child.key) for child in step.children[:MOST_OTHERS]))
        yield f"no rule applies: the descriptor ends here, the rules go on with {below}"
    else:
        yield "no rule applies: this step has no limits"


def _named(step: Step) -> str:
    return step.key if step.value is None else f"{step.key}={step.value!r}"
