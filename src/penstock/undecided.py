"""Undecided hits: units that are taken before anybody knows whether they will count.

A log-in is counted if the password was wrong, which is known at its end. While it is under
way, its unit is taken: the limit is never exceeded. But a request that is refused because of
such units has not violated anything yet, and must not start a lockout: those before it may all
be given back.

So a limit with a lockout has a second row beside each key's own, which counts what is
undecided. Both are taken in one step, and the second is given back as soon as it is decided. A
refusal while anything of the key is undecided is an ordinary one. A refusal while nothing is, is
a violation, and starts the lockout.

Nobody gains by leaving a request undecided: its unit stays taken, and that many fewer pass.
What is never decided (its process died) is forgotten after two to four periods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock import flows
from penstock.decision import Decision
from penstock.limit import Limit
from penstock.stores.base import Counters, Store, check_key

Item = tuple[Counters, str, int]

# Before the key of the second row.
PREFIX = "undecided:"
# Units that may be undecided at once, besides what the limit allows.
ROOM = 1_000_000


@dataclass(frozen=True, slots=True)
class Group:
    """Take from all, or from none; a refusal is no violation."""

    store: Store
    items: list[Item]

    def ask(self) -> Any:
        return self.store.hit_each(self.items, attempt=True)

    def submit(self) -> Awaitable[Any]:
        return self.store.hit_each_async(self.items, attempt=True)


@dataclass(frozen=True, slots=True)
class Single:
    """One verb of the counters."""

    counters: Counters
    verb: str
    args: tuple[Any, ...]

    def ask(self) -> Any:
        return getattr(self.counters, self.verb)(*self.args)

    def submit(self) -> Awaitable[Any]:
        return self.counters.submit(self.verb, *self.args)


@dataclass(frozen=True, slots=True)
class Undecided:
    """Decisions on all that was wanted, and what to ask when it is known whether it counts."""

    decisions: list[Decision]
    settle: Sequence[Single] = ()


Flow = Generator[Group | Single, Any, Undecided]


def has_lockout(counters: Counters) -> bool:
    return counters.limit.lockout_ns > 0


def take(store: Store, wanted: Sequence[Item]) -> Flow:
    """Take all of it until it is decided whether it counts, or none."""
    beside = [
        (at, (store.counters(beside_of(counters.limit)), PREFIX + check_key(key), cost))
        for at, (counters, key, cost) in enumerate(wanted)
        if has_lockout(counters)
    ]
    found: list[Decision] = yield Group(store, [*wanted, *(item for _, item in beside)])
    decisions, undecided = list(found[: len(wanted)]), found[len(wanted) :]
    if all(found):
        singles = [
            Single(counters, "refund", (key, cost, decision._mark))
            for (_, (counters, key, cost)), decision in zip(beside, undecided, strict=True)
        ]
        return Undecided(decisions, singles)
    if all(decisions):  # only the second row is full, of what nobody has decided
        return Undecided((yield Group(store, list(wanted))))
    for (at, _), waiting in zip(beside, undecided, strict=True):
        counters, key, cost = wanted[at]
        if is_violation(decisions[at], waiting):
            decision = yield Single(counters, "hit", (key, cost))
            if decision:  # a unit has come back since: it is for whoever asks next
                yield Single(counters, "refund", (key, cost, decision._mark))
            else:
                decisions[at] = decision
    return Undecided(decisions)


def is_violation(decision: Decision, undecided: Decision) -> bool:
    """Whether it was refused for what counts, and nothing that may yet be given back."""
    return not decision and undecided.remaining >= undecided.limit.amount


def finish(flow: Flow) -> Undecided:
    """In a thread."""
    return flows.run(flow, lambda step: step.ask())


async def finish_async(flow: Flow) -> Undecided:
    """In a task."""
    return await flows.run_async(flow, lambda step: step.submit())


@lru_cache(1024)
def beside_of(limit: Limit) -> Limit:
    """Of the second row: it has room for all, and remembers for longer than the limit does."""
    memory = max(2 * limit.period_ns, (limit.burst + limit.debt) * limit.interval_ns)
    return Limit(
        ROOM + limit.burst,
        f"{memory}ns",
        algorithm="sliding_window",
        on_failure=limit.on_failure,
        share=limit.share,
    )
