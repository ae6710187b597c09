"""LimitPool: counters of limits that do not stand in the rules, and when to let go of them.

Such a limit is brought by a request, comes of an override, or stood in the rules before. A
store keeps the counters of every limit that it has seen; what is idle for as long as its limit
remembers is given back here. So nothing that was counted is lost.

Anybody who may ask may bring limits, so there is a bound on them: `MOST_BROUGHT`. Beyond it,
those make room that are idle, and those whose state lies elsewhere, in a file or in Redis. If
there is none, a request with yet another limit is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice

from penstock.durations import SECOND
from penstock.errors import TooManyLimits
from penstock.limit import Limit
from penstock.rules.deciding.lineage import memory_of
from penstock.stores.base import Counters, Store

# Different limits that requests may bring, over all wires: some 1.5 kB each, with one key.
MOST_BROUGHT = 4_096
# Others are looked through when so many have come: they are bounded by rules and overrides.
_LOOK_EVERY = 256
# How many of the oldest are asked to make room, and how long until they are asked again.
_OLDEST, _PATIENCE = 8, SECOND


class LimitPool:
    """``is_ruled`` says whether a limit stands in the rules: then it is not let go of."""

    def __init__(self, store: Store, is_ruled: Callable[[Limit], bool]) -> None:
        self._store = store
        self._is_ruled = is_ruled
        self._lock = threading.Lock()
        self._brought: dict[Limit, int] = {}  # until when each is counted by
        self._others: dict[Limit, int] = {}
        self._next_end = 0  # until then, none of those that were brought makes room
        self._look_at = _LOOK_EVERY

    def __len__(self) -> int:
        return len(self._brought) + len(self._others)

    def brought(self, limit: Limit, now: int) -> Counters:
        """The counters of a limit that a request brings; `TooManyLimits` if there are too many."""
        if limit not in self._brought:
            if self._is_ruled(limit):
                return self._store.counters(limit)
            with self._lock:
                self._make_room(now)
                counters = self._store.counters(limit)
                self._others.pop(limit, None)
                self._brought[limit] = now + memory_of(limit)
                return counters
        self._brought[limit] = now + memory_of(limit)
        return self._store.counters(limit)

    def counters(self, limit: Limit, now: int) -> Counters:
        """The counters of a limit that comes of an override."""
        counters = self._store.counters(limit)
        if limit not in self._brought and not self._is_ruled(limit):
            self.retire(limit, now)
        return counters

    def retire(self, limit: Limit, now: int) -> None:
        """A limit that is not in the rules, or no longer: let go of it when it has run out."""
        if limit in self._brought:
            return
        self._others[limit] = now + memory_of(limit)
        if len(self._others) >= self._look_at:
            self.free(now)

    def free(self, now: int) -> None:
        """Let go of all that is idle."""
        with self._lock:
            self._free(self._others, now)
            self._look_at = 2 * len(self._others) + _LOOK_EVERY

    def _make_room(self, now: int) -> None:
        if len(self._brought) < MOST_BROUGHT:
            return
        if now >= self._next_end:
            self._free(self._brought, now)
            self._let_go_of_oldest()
            if len(self._brought) >= MOST_BROUGHT:
                self._next_end = now + _PATIENCE
        if len(self._brought) >= MOST_BROUGHT:
            raise TooManyLimits(
                f"requests have brought {len(self._brought)} different limits that are still"
                f" counted by, and {MOST_BROUGHT} is the most: bring fewer different ones, or"
                " write them into the rules"
            )

    def _let_go_of_oldest(self) -> None:
        if len(self._brought) >= MOST_BROUGHT:
            for limit in [*islice(self._brought, _OLDEST)]:
                if self._store.release(limit):
                    del self._brought[limit]

    def _free(self, found: dict[Limit, int], now: int) -> None:
        for limit, until in [*found.items()]:
            if until > now:
                continue
            if self._is_ruled(limit) or self._store.release(limit):
                del found[limit]
            else:
                found[limit] = now + memory_of(limit)
