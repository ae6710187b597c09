"""What a gate is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.decision import Decision
from penstock.errors import InvalidCost, InvalidKey
from penstock.limit import Limit, as_limit

if TYPE_CHECKING:
    from penstock.rules.deciding.plan import Plan
    from penstock.rules.model import Rule

Pair = tuple[str, str]
# Units that one descriptor may ask for at once, either way.
MOST_HITS = 2**32


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Ordered pairs, with what this request says otherwise than the rules.

    ``limit`` is decided by instead of the rule's limits. ``hits`` goes before the
    request's: 0 looks without taking, below zero gives back.

    ``envoy`` says that the limit came in Envoy's words, so that debits are booked on it;
    ``closed_period_ns`` is the unit of one of zero requests, which refuses.
    """

    pairs: tuple[Pair, ...]
    limit: Limit | None = None
    hits: int | None = None
    envoy: bool = False
    closed_period_ns: int = 0

    @classmethod
    def of(
        cls,
        pairs: Mapping[str, str] | Iterable[Pair],
        limit: Limit | str | None = None,
        hits: int | None = None,
    ) -> Descriptor:
        """From a mapping or a list of pairs, checked."""
        own = None if limit is None else as_limit(limit)
        return cls(check_pairs(pairs), own, None if hits is None else check_hits(hits))


DescriptorLike = Descriptor | Mapping[str, str] | Iterable[Pair]


def as_descriptor(asked: DescriptorLike) -> Descriptor:
    return asked if type(asked) is Descriptor else Descriptor(check_pairs(asked))  # type: ignore[arg-type]  # it is no Descriptor


def check_pairs(pairs: Mapping[str, str] | Iterable[Pair]) -> tuple[Pair, ...]:
    if isinstance(pairs, Mapping):
        pairs = pairs.items()
    if isinstance(pairs, (str, bytes)):
        raise InvalidKey(f"a descriptor is a mapping or a list of pairs, not {pairs!r:.100}")
    try:
        found = tuple(pairs)
    except TypeError:
        raise InvalidKey(
            f"a descriptor is a mapping or a list of pairs, not {type(pairs).__name__}"
        ) from None
    if not found:
        raise InvalidKey("a descriptor has at least one pair; this one is empty")
    for pair in found:
        if type(pair) is not tuple or len(pair) != 2:
            raise InvalidKey(f"a descriptor's pair is a tuple (key, value), not {pair!r:.100}")
        key, value = pair
        if not isinstance(key, str) or not key or not isinstance(value, str):
            raise InvalidKey(f"a descriptor's key and value are texts, not {pair!r:.100}")
    return found


def check_hits(hits: object) -> int:
    if type(hits) is not int or not -MOST_HITS < hits < MOST_HITS:
        raise InvalidCost(f"hits is a whole number of less than 2**32, not {hits!r:.100}")
    return hits


@dataclass(frozen=True, slots=True)
class Status:
    """What became of one descriptor.

    ``decision`` is that of its strictest limit, and None where nothing was counted: no
    rule matched (``rule`` is None, too), it is unlimited, on a list, or switched off.
    ``reason`` is one word for it.
    """

    pairs: tuple[Pair, ...]
    allowed: bool
    reason: str
    rule: Rule | None = None
    decision: Decision | None = None
    limit_name: str | None = None
    shadow: bool = False
    quota: bool = False


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
    - ``plan``, ``decisions``: of a request that took the short way, what it asked of the
      store and what was decided on each of it: see `Plan`. The statuses are made of them
    """

    __slots__ = ("_statuses", "allowed", "decision", "decisions", "plan", "rule")

    def __init__(
        self,
        allowed: bool,
        decision: Decision | None,
        rule: Rule | None,
        statuses: tuple[Status, ...] | None,
        plan: Plan | None = None,
        decisions: Sequence[Decision] = (),
    ) -> None:
        self.allowed = allowed
        self.decision = decision
        self.rule = rule
        self.plan = plan
        self.decisions = decisions
        self._statuses = statuses  # made when they are looked at: many callers never do

    @property
    def statuses(self) -> tuple[Status, ...]:
        statuses = self._statuses
        if statuses is None:
            assert self.plan is not None
            statuses = self._statuses = self.plan.statuses(self.decisions)
        return statuses

    def __bool__(self) -> bool:
        return self.allowed

    def told(self) -> list[tuple[str, Decision]]:
        """The limits that an answer tells of, with their names: see `speaking`."""
        return [
            (status.limit_name or "default", status.decision)
            for status in speaking(self.statuses)
            if status.decision is not None
        ]

    @property
    def retry_after(self) -> float | None:
        """Seconds until the same request would be allowed; None if no waiting helps."""
        if self.allowed:
            return 0.0
        return None if self.decision is None else self.decision.retry_after

    def __repr__(self) -> str:
        word = "allowed" if self.allowed else "refused"
        rule = f" by {self.rule.id}" if self.rule is not None and not self.allowed else ""
        return f"<Verdict {word}{rule} {list(self.statuses)!r}>"


def speaking(statuses: Sequence[Status]) -> list[Status]:
    """Those that have to do with the answer: none in shadow, and not every quota that is over.

    Quotas that are over say nothing if another one passes. If all are, the one that is back
    first says how long to wait.
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
    """How long a status keeps the request out; one that is closed or denied, for ever."""
    retry = -1 if status.decision is None else status.decision._retry
    return float("inf") if retry < 0 else retry
