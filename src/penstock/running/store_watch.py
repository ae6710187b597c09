"""StoreWatch: logs that a store is full, or that its file was damaged.

Few people look at a metric that has always been zero, so increases are logged: the first at
once, further ones at most every ten minutes.
"""

from __future__ import annotations

import logging

from penstock.clock import MONOTONIC, SECOND, Clock
from penstock.metrics import Snapshot

logger = logging.getLogger("penstock.server")

PAUSE = 600 * SECOND
_FULL = (
    "the store (%s) is full: %d keys were evicted while they still counted, and their limits"
    " started over; raise --max-keys (now %s)"
)
_DAMAGED = "the file of the store (%s) was damaged: %d times, the damaged part started over"


class StoreWatch:
    """Compares the metrics with those of the last look. The first look sets the baseline."""

    def __init__(self, clock: Clock = MONOTONIC) -> None:
        self._clock = clock
        self._reported: dict[tuple[str, str], tuple[float, int]] = {}  # the count, and when

    def look(self, snapshot: Snapshot) -> None:
        for store, new in self._increases(snapshot, "penstock_store_evictions_total"):
            most = snapshot.get("penstock_store_max_keys", store)
            logger.warning(_FULL, store, new, most)
        for store, new in self._increases(snapshot, "penstock_store_repairs_total"):
            logger.warning(_DAMAGED, store, new)

    def _increases(self, snapshot: Snapshot, family: str) -> list[tuple[str, float]]:
        """Stores whose counter has grown since it was last reported, and by how much."""
        increases, now = [], self._clock.now()
        for (store,), count in snapshot.values.get(family, {}).items():
            assert not isinstance(count, list)
            before, at = self._reported.setdefault((family, store), (count, now - PAUSE))
            if count > before and now - at >= PAUSE:
                self._reported[family, store] = (count, now)
                increases.append((store, count - before))
        return increases
