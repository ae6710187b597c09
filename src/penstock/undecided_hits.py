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
from penstock.flow_steps import CallCounters, HitAll
from penstock.limits import Limit
from penstock.stores.base import Counters, Store, check_key

Item = tuple[Counters, str, int]

# Units that may be undecided at once, besides what the limit allows.
ROOM = 1_000_000


@dataclass(frozen=True, slots=True)
class UndecidedHits:
    """A decision for each item, and the steps to take when it is known whether they count."""

    decisions: list[Decision]
    settle: Sequence[CallCounters] = ()


Flow = Generator[CallCounters | HitAll, Any, UndecidedHits]


def has_lockout(counters: Counters) -> bool:
    return counters.limit.lockout_ns > 0


def take(store: Store, items: Sequence[Item]) -> Flow:
    """Take all items, until it is decided whether they count, or none."""
    rows = [
        (index, (_row(store, counters), keys.undecided(check_key(key)), cost))
        for index, (counters, key, cost) in enumerate(items)
        if has_lockout(counters)
    ]
    answers: list[Decision] = yield HitAll(store, [*items, *(row for _, row in rows)], True)
    decisions, undecided = list(answers[: len(items)]), answers[len(items) :]
    if all(answers):
        refunds = [
            CallCounters(counters, "refund", (key, cost, decision._mark))
            for (_, (counters, key, cost)), decision in zip(rows, undecided, strict=True)
        ]
        return UndecidedHits(decisions, refunds)
    if all(decisions):  # only the second row is full: too much was never decided
        return UndecidedHits((yield HitAll(store, list(items), True)))
    for (index, _), undecided_row in zip(rows, undecided, strict=True):
        counters, key, cost = items[index]
        if is_violation(decisions[index], undecided_row):
            decision = yield CallCounters(counters, "hit", (key, cost))
            if decision:  # a unit has come back since: leave it to the next request
                yield CallCounters(counters, "refund", (key, cost, decision._mark))
            else:
                decisions[index] = decision
    return UndecidedHits(decisions)


def _row(store: Store, counters: Counters) -> Counters:
    limit, name = row_limit(counters.limit), counters.name
    return store.counters(limit) if name is None else store.counters(limit, name)


def is_violation(decision: Decision, undecided: Decision) -> bool:
    """Whether it was refused while no unit of the key was undecided."""
    return not decision and undecided.remaining >= undecided.limit.amount


@lru_cache(1024)
def row_limit(limit: Limit) -> Limit:
    """The limit of the second row: large enough for all units, with a longer period."""
    memory = max(2 * limit.period_ns, (limit.burst + limit.debt) * limit.interval_ns)
    return Limit(
        ROOM + limit.burst,
        f"{memory}ns",
        algorithm="sliding_window",
        on_failure=limit.on_failure,
        share=limit.share,
    )
