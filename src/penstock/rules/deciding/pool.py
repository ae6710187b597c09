"""LimitPool: counters of limits that are not in the rules, and when to release them.

Such a limit is brought by a request, results from an override, or was in the rules before. A
store keeps the counters of every limit that it has seen. The pool releases those that have been
idle for as long as their limit remembers, so nothing that was counted is lost.

Any client may bring limits, so their number is bounded: `MOST_BROUGHT`. Beyond it, limits are
released that are idle, or whose state is elsewhere, in a file or in Redis. If there are none, a
request with yet another limit is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice

from penstock.durations import SECOND
from penstock.errors import TooManyLimits
from penstock.limits import Limit
from penstock.rules.deciding.lineage import memory_of
from penstock.stores.base import Counters, Store

# Different limits that requests may bring: some 1.5 kB each, with one key.
MOST_BROUGHT = 4_096
# The others are cleaned up when so many have been added: rules and overrides bound them.
_LOOK_EVERY = 256
# How many of the oldest are tried for release, and how long until the next try.
_OLDEST, _PATIENCE = 8, SECOND


class LimitPool:
    """``is_ruled`` says whether a limit is in the rules: then it is not released."""

    def __init__(self, store: Store, is_ruled: Callable[[Limit], bool]) -> None:
        self._store = store
        self._is_ruled = is_ruled
        self._lock = threading.Lock()
        self._brought: dict[Limit, int] = {}  # and until when it is in use
        self._others: dict[Limit, int] = {}
        self._next_end = 0  # until then, none of those that were brought can be released
        self._look_at = _LOOK_EVERY

    def __len__(self) -> int:
        return len(self._brought) + len(self._others)

    def brought(self, limit: Limit, now: int, lease: bool | int | None = None) -> Counters:
        """The counters of a limit that a request brings; `TooManyLimits` if there are too many.

        ``lease`` is that of the rule.
        """
        if limit not in self._brought:
            if self._is_ruled(limit):
                return self._store.counters_with(limit, lease)
            with self._lock:
                self._make_room(now)
                counters = self._store.counters_with(limit, lease)
                self._others.pop(limit, None)
                self._brought[limit] = now + memory_of(limit)
                return counters
        self._brought[limit] = now + memory_of(limit)
        return self._store.counters_with(limit, lease)

    def counters(self, limit: Limit, now: int, lease: bool | int | None = None) -> Counters:
        """The counters of a limit that results from an override."""
        counters = self._store.counters_with(limit, lease)
        if limit not in self._brought and not self._is_ruled(limit):
            self.retire(limit, now)
        return counters

    def retire(self, limit: Limit, now: int) -> None:
        """Release a limit that is not in the rules, or no longer, when it has expired."""
        if limit in self._brought:
            return
        self._others[limit] = now + memory_of(limit)
        if len(self._others) >= self._look_at:
            self.free(now)

    def free(self, now: int) -> None:
        """Release all limits that are idle."""
        with self._lock:
            self._release_idle(self._others, now)
            self._look_at = 2 * len(self._others) + _LOOK_EVERY

    def _make_room(self, now: int) -> None:
        if len(self._brought) < MOST_BROUGHT:
            return
        if now >= self._next_end:
            self._release_idle(self._brought, now)
            if len(self._brought) >= MOST_BROUGHT:
                for limit in [*islice(self._brought, _OLDEST)]:
                    if self._store.release(limit):
                        del self._brought[limit]
            if len(self._brought) >= MOST_BROUGHT:
                self._next_end = now + _PATIENCE
        if len(self._brought) >= MOST_BROUGHT:
            raise TooManyLimits(
                f"requests have brought {len(self._brought)} different limits that are still"
                f" counted by, and {MOST_BROUGHT} is the most: bring fewer different ones, or"
                " write them into the rules"
            )

    def _release_idle(self, limits: dict[Limit, int], now: int) -> None:
        for limit, until in [*limits.items()]:
            if until > now:
                continue
            if self._is_ruled(limit) or self._store.release(limit):
                del limits[limit]
            else:
                limits[limit] = now + memory_of(limit)
