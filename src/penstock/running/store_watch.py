"""StoreWatch: says in the log that a store is full, or that its file was damaged.

Nobody looks at a metric that has always been zero. It says so at once, and then once in a
while for as long as it goes on.
"""

from __future__ import annotations

import logging

from penstock.clock import MONOTONIC, SECOND, Clock
from penstock.metrics import Snapshot

logger = logging.getLogger("penstock.server")

PAUSE = 600 * SECOND
_FULL = (
    "the store (%s) is full: %d keys that still counted have given way, and their limits began"
    " anew; raise --max-keys (now %s)"
)
_DAMAGED = "the file of the store (%s) was damaged: %d times, what could not be right began anew"


class StoreWatch:
    """Is shown the metrics from time to time. What was counted before the first look is old."""

    def __init__(self, clock: Clock = MONOTONIC) -> None:
        self._clock = clock
        self._told: dict[tuple[str, str], tuple[float, int]] = {}  # how much, and when

    def look(self, snapshot: Snapshot) -> None:
        for store, new in self._news(snapshot, "penstock_store_evictions_total"):
            most = snapshot.get("penstock_store_max_keys", store)
            logger.warning(_FULL, store, new, most)
        for store, new in self._news(snapshot, "penstock_store_repairs_total"):
            logger.warning(_DAMAGED, store, new)

    def _news(self, snapshot: Snapshot, family: str) -> list[tuple[str, float]]:
        """Stores of which there is something to say, and how much came since it was last said."""
        found, now = [], self._clock.now()
        for (store,), count in snapshot.values.get(family, {}).items():
            assert not isinstance(count, list)
            before, at = self._told.setdefault((family, store), (count, now - PAUSE))
            if count > before and now - at >= PAUSE:
                self._told[family, store] = (count, now)
                found.append((store, count - before))
        return found
