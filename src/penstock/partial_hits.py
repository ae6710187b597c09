"""The verbs `charge` and `hit_up_to`, written once for threads and for coroutines."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from penstock.combined import parts_of
from penstock.decision import Decision
from penstock.flow_steps import CallCounters, HitAll, Step
from penstock.stores.base import Counters, Store, speaking


@dataclass(frozen=True, slots=True)
class PartialHit:
    """How much `hit_up_to` took, and the decision on that. True if it took anything.

    If it took nothing, the decision is the refusal of a single unit.
    """

    taken: int
    decision: Decision

    def __bool__(self) -> bool:
        return self.taken > 0


def charge(counters: Counters, key: str, cost: int) -> Generator[Step, Any, Decision]:
    """Take ``cost`` whether it fits or not. The decision is on one more unit."""
    yield CallCounters(counters, "charge", (key, cost))
    decision: Decision = yield CallCounters(counters, "peek", (key, 1))
    return decision


def hit_up_to(
    store: Store, counters: Counters, key: str, most: int
) -> Generator[Step, Any, PartialHit]:
    """Take as much as there is, at most ``most``.

    Each attempt takes all that it asks for, or nothing. So the second asks for what the first
    one saw; if others were quicker it sees less, and asks again.
    """
    parts = parts_of(counters)
    wanted = most
    while True:
        items = [(part, key, wanted) for part in parts]
        decisions: list[Decision] = yield HitAll(store, items, True)
        if all(decisions):
            return PartialHit(wanted, speaking(decisions))
        if wanted == 1:
            return PartialHit(0, speaking(decisions))
        room = min([decision.remaining for decision in decisions])
        # Less each time, so that it ends.
        wanted = max(1, min(room, wanted - 1))
