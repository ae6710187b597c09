"""What a gate is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.decision import Decision
from penstock.durations import format_duration
from penstock.errors import InvalidCost, InvalidKey
from penstock.limits import Limit, limits_of
from penstock.rules.model import Rule
from penstock.stores.base import Counters

Pair = tuple[str, str]
# Units that one descriptor may take or give back at once.
MOST_HITS = 2**32


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Ordered pairs, and what this request wants to be different from the rules.

    ``limit`` replaces the rule's limits, together with those in ``also``: all of them pass, or
    nothing is taken. ``hits`` replaces the request's: 0 looks without taking, below zero gives
    back.

    ``envoy`` says that the limit came in Envoy's format, so debits are booked on it.
    ``closed_period_ns`` is the unit of a limit of zero requests, which refuses everything.
    """

    pairs: tuple[Pair, ...]
    limit: Limit | None = None
    hits: int | None = None
    envoy: bool = False
    closed_period_ns: int = 0
    also: tuple[Limit, ...] = ()

    @classmethod
    def of(
        cls,
        pairs: Mapping[str, str] | Iterable[Pair],
        limit: Limit | str | None = None,
        hits: int | None = None,
    ) -> Descriptor:
        """From a mapping or a list of pairs, checked. A text may name several limits."""
        units = None if hits is None else check_hits(hits)
        if limit is None:
            return cls(check_pairs(pairs), None, units)
        own, *also = limits_of(limit)
        return cls(check_pairs(pairs), own, units, also=tuple(also))


DescriptorLike = Descriptor | Mapping[str, str] | Iterable[Pair]
Descriptors = Sequence[DescriptorLike]


def as_descriptors(descriptors: Iterable[DescriptorLike]) -> list[Descriptor]:
    return [
        item if isinstance(item, Descriptor) else Descriptor(check_pairs(item))
        for item in descriptors
    ]


def check_pairs(pairs: Mapping[str, str] | Iterable[Pair]) -> tuple[Pair, ...]:
    if isinstance(pairs, Mapping):
        pairs = pairs.items()
    if isinstance(pairs, (str, bytes)):
        raise InvalidKey(
            "a descriptor is a mapping or a list of pairs, such as {'user': '42'}, "
            f"not {pairs!r:.100}"
        )
    try:
        checked = tuple(pairs)
    except TypeError:
        raise InvalidKey(
            f"a descriptor is a mapping or a list of pairs, not {type(pairs).__name__}"
        ) from None
    if not checked:
        raise InvalidKey("a descriptor has at least one pair; this one is empty")
    for pair in checked:
        if type(pair) is not tuple or len(pair) != 2:
            raise InvalidKey(f"a descriptor's pair is a tuple (key, value), not {pair!r:.100}")
        key, value = pair
        if not isinstance(key, str) or not key or not isinstance(value, str):
            hint = f": write {str(value)!r:.50}" if type(value) is int else ""
            raise InvalidKey(f"a descriptor's key and value are texts, not {pair!r:.100}{hint}")
    return checked


def check_hits(hits: object) -> int:
    if type(hits) is not int or not -MOST_HITS < hits < MOST_HITS:
        raise InvalidCost(f"hits is a whole number of less than 2**32, not {hits!r:.100}")
    return hits


@dataclass(frozen=True, slots=True)
class Status:
    """What became of one descriptor.

    ``decision`` is that of its strictest limit. It is None where nothing was counted: no rule
    matched (then ``rule`` is None, too), or the descriptor is unlimited, on a list, or switched
    off. ``reason`` says which.
    """

    pairs: tuple[Pair, ...]
    allowed: bool
    reason: str
    rule: Rule | None = None
    decision: Decision | None = None
    limit_name: str | None = None
    shadow: bool = False
    quota: bool = False

    @property
    def is_about_slots(self) -> bool:
        """Whether the decision is that of the rule's concurrency."""
        slots = () if self.rule is None else self.rule.concurrency
        return any(self.limit_name == limit.name for limit in slots)

    @property
    def limit_text(self) -> str | None:
        """The limit that decided as it is written in rules."""
        return None if self.decision is None else text_of(self.decision.limit, self.is_about_slots)


def text_of(limit: Limit, of_slots: bool) -> str:
    """A limit as it is written in rules; of slots, not as the log that they are counted by."""
    if not of_slots:
        return str(limit)
    return f"concurrency {limit.amount} slot_lease {format_duration(limit.period_ns)}"


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot that a request holds: ``units`` of ``rule``'s concurrency under ``key``.

    ``until`` is when its lease ends, by the gate's clock.
    """

    rule: str
    counters: Counters
    key: str
    units: int
    mark: int
    until: int


class StatusSource(Protocol):
    """Builds the statuses of a verdict when they are needed: a `Plan`."""

    def statuses(self, decisions: Sequence[Decision]) -> tuple[Status, ...]: ...


# Reasons.
LIMIT = "limit"
UNMATCHED = "unmatched"
UNLIMITED = "unlimited"
CLOSED = "closed"
ALLOWED = "allow list"
DENIED = "deny list"
REPLACED = "replaced"
OFF = "switched off"
REFUND = "given back"


class Verdict:
    """May the request go ahead? ``if verdict:`` is all that most callers need.

    - ``allowed``: the answer, also as the truth value
    - ``decision``: of the limit that speaks for the request: the one that refused it, or
      the one with the least remaining; None if nothing was counted
    - ``rule``: the rule of that limit, or the one that refused without a limit
    - ``statuses``: what became of each descriptor, in their order
    - ``slots``: what the request holds of rules with ``concurrency``, until it is released
    - ``plan``, ``decisions``: of a request that was decided by a `Plan`, that plan and a
      decision for each of its items. The statuses are built from them
    """

    __slots__ = ("_statuses", "allowed", "decision", "decisions", "plan", "rule", "slots")

    def __init__(
        self,
        allowed: bool,
        decision: Decision | None,
        rule: Rule | None,
        statuses: tuple[Status, ...] | None,
        plan: StatusSource | None = None,
        decisions: Sequence[Decision] = (),
    ) -> None:
        self.allowed = allowed
        self.decision = decision
        self.rule = rule
        self.slots: Sequence[Slot] = ()
        self.plan = plan
        self.decisions = decisions
        self._statuses = statuses  # built on first use: many callers never need them

    @property
    def statuses(self) -> tuple[Status, ...]:
        statuses = self._statuses
        if statuses is None:
            assert self.plan is not None
            statuses = self._statuses = self.plan.statuses(self.decisions)
        return statuses

    def __bool__(self) -> bool:
        return self.allowed

    def __eq__(self, other: object) -> Any:
        """``check(...) == False`` is what it says."""
        return self.allowed == other if isinstance(other, bool) else NotImplemented

    def __hash__(self) -> int:
        return id(self) >> 4

    def named_decisions(self) -> list[tuple[str, Decision]]:
        """The decisions to report to the client, with the names of their limits."""
        return [
            (status.limit_name or "default", status.decision)
            for status in decisive(self.statuses)
            if status.decision is not None
        ]

    @property
    def retry_after(self) -> float | None:
        """Seconds until the same request would be allowed; None if no waiting helps."""
        if self.allowed:
            return 0.0
        return None if self.decision is None else self.decision.retry_after

    def __repr__(self) -> str:
        answer = "allowed" if self.allowed else "refused"
        rule = f" by {self.rule.id}" if self.rule is not None and not self.allowed else ""
        return f"<Verdict {answer}{rule} {list(self.statuses)!r}>"


def decisive(statuses: Sequence[Status]) -> list[Status]:
    """The statuses that affect the answer: none in shadow, and not every exhausted quota.

    Exhausted quotas do not matter if another quota passes. If all are exhausted, the one that
    recovers first determines the wait.
    """
    out = [status for status in statuses if not status.shadow]
    over = [status for status in out if status.quota and not status.allowed]
    if not over:
        return out
    first: Status | None = None
    if not any(status.quota and status.allowed for status in statuses):
        first = min(over, key=_wait)
    return [status for status in out if status is first or status.allowed or not status.quota]


def _wait(status: Status) -> float:
    """How long a status refuses the request; forever if it is closed or denied."""
    retry = -1 if status.decision is None else status.decision._retry
    return float("inf") if retry < 0 else retry
