"""Undecided hits: units that are taken before it is known whether they will count.

A log-in counts if the password was wrong, which is known only at its end. While it is being
checked its unit stays taken, so the limit is never exceeded. But a request that is refused
because of such units has not violated the limit yet and must not start a lockout: all the units
before it may be given back.

So a limit with a lockout keeps a second row beside each key's own, which counts the undecided
units. Both rows are taken from in one step, and the second is refunded as soon as the unit is
decided. A refusal while any unit of the key is undecided is an ordinary refusal. A refusal while
none is undecided is a violation and starts the lockout.

Clients gain nothing by leaving requests undecided: the units stay taken, and that many fewer
requests pass. Units that are never decided (the process died) are forgotten after two to four
periods.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock import keys
from penstock.decision import Decision
from penstock.limit import Limit
from penstock.steps import AttemptAll, CallCounters
from penstock.stores.base import Counters, Store, check_key

Item = tuple[Counters, str, int]

# Units that may be undecided at once, besides what the limit allows.
ROOM = 1_000_000


@dataclass(frozen=True, slots=True)
class Undecided:
    """A decision for each item, and the steps to take when it is known whether they count."""

    decisions: list[Decision]
    settle: Sequence[CallCounters] = ()


Flow = Generator[AttemptAll | CallCounters, Any, Undecided]


def has_lockout(counters: Counters) -> bool:
    return counters.limit.lockout_ns > 0


def take(store: Store, items: Sequence[Item]) -> Flow:
    """Take all items, until it is decided whether they count, or none."""
    beside = [
        (at, (store.counters(beside_of(counters.limit)), keys.undecided(check_key(key)), cost))
        for at, (counters, key, cost) in enumerate(items)
        if has_lockout(counters)
    ]
    answers: list[Decision] = yield AttemptAll(store, [*items, *(item for _, item in beside)])
    decisions, undecided = list(answers[: len(items)]), answers[len(items) :]
    if all(answers):
        refunds = [
            CallCounters(counters, "refund", (key, cost, decision._mark))
            for (_, (counters, key, cost)), decision in zip(beside, undecided, strict=True)
        ]
        return Undecided(decisions, refunds)
    if all(decisions):  # only the second row is full: too much was never decided
        return Undecided((yield AttemptAll(store, list(items))))
    for (at, _), waiting in zip(beside, undecided, strict=True):
        counters, key, cost = items[at]
        if is_violation(decisions[at], waiting):
            decision = yield CallCounters(counters, "hit", (key, cost))
            if decision:  # a unit has come back since: leave it to the next request
                yield CallCounters(counters, "refund", (key, cost, decision._mark))
            else:
                decisions[at] = decision
    return Undecided(decisions)


def is_violation(decision: Decision, undecided: Decision) -> bool:
    """Whether it was refused for units that count, none of which may yet be given back."""
    return not decision and undecided.remaining >= undecided.limit.amount


@lru_cache(1024)
def beside_of(limit: Limit) -> Limit:
    """The limit of the second row: room for all, and a longer memory than the limit's own."""
    memory = max(2 * limit.period_ns, (limit.burst + limit.debt) * limit.interval_ns)
    return Limit(
        ROOM + limit.burst,
        f"{memory}ns",
        algorithm="sliding_window",
        on_failure=limit.on_failure,
        share=limit.share,
    )
