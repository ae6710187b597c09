"""SlotCounters: how many slots of each rule's concurrency are in use, taken and refused.

A slot is in use until it is released or its lease ends. One process may grant a lease and another
release it. Therefore nothing is remembered about a lease but the second in which it ends: the
first process counts one up in that second, the other one down, and their sum is right.
"""

from __future__ import annotations

from penstock.clock import SECOND
from penstock.events import Event, SlotRefused, SlotReleased, SlotTaken
from penstock.metrics.families import OTHER
from penstock.metrics.labels import short
from penstock.metrics.snapshot import Snapshot

IN_USE, TAKEN = "penstock_slots_in_use", "penstock_slots_taken_total"
REFUSED = "penstock_slots_refused_total"
# How many rules are distinguished.
_MOST = 1_000


class SlotCounters:
    """Not for several threads at once: its caller has a lock."""

    def __init__(self) -> None:
        self._ending: dict[str, dict[int, int]] = {}  # by rule, and the second of the lease's end
        self._taken: dict[str, int] = {}
        self._refused: dict[str, int] = {}

    def count(self, event: Event, now: int) -> None:
        if isinstance(event, SlotRefused):
            rule = self._label(event.rule)
            self._refused[rule] = self._refused.get(rule, 0) + 1
        elif isinstance(event, SlotTaken | SlotReleased):
            rule = self._label(event.rule)
            ending = self._ending.setdefault(rule, {})
            units = event.units if isinstance(event, SlotTaken) else -event.units
            if isinstance(event, SlotTaken):
                self._taken[rule] = self._taken.get(rule, 0) + units
            second = event.until // SECOND
            if second not in ending:
                self._drop(ending, now)
            ending[second] = ending.get(second, 0) + units

    def collect(self, out: Snapshot, now: int) -> None:
        for rule, ending in self._ending.items():
            self._drop(ending, now)
            out.set(IN_USE, (rule,), sum(ending.values()))
        for family, values in ((TAKEN, self._taken), (REFUSED, self._refused)):
            for rule, value in values.items():
                out.set(family, (rule,), value)

    def _drop(self, ending: dict[int, int], now: int) -> None:
        """Forget leases that have ended."""
        for second in [second for second in ending if second < now // SECOND]:
            del ending[second]

    def _label(self, rule: str) -> str:
        label = short(rule)
        known = label in self._ending or label in self._refused
        return label if known or len(self._ending) + len(self._refused) < _MOST else OTHER
