"""The common part of the uncompiled counters, in a dict or in a file.

They decide as the compiled ones do, for machines without a compiler and to test the compiled
ones against. A subclass finds, changes and locks rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from penstock.algorithms.words import ATTEMPT, HIT, LOOK, NO_MARK, NO_ROOM, Words
from penstock.decision import Decision, new_decision
from penstock.stores.base import ENDLESS, Counters, check_cost
from penstock.stores.levels import HALF, LOCKED, REFUSED


class PureCounters(Counters):
    """Counters whose rows are where `place` says."""

    blank: Words

    def place(self, key: str) -> Any:
        """Where the row of a key is; checks the key."""
        raise NotImplementedError

    def locked(self) -> AbstractContextManager[Any]:
        """Excludes all other threads and processes."""
        raise NotImplementedError

    def find(self, place: Any) -> Words | None:
        raise NotImplementedError

    def change(self, place: Any) -> AbstractContextManager[Words]:
        """The row to write to, created if there is none."""
        raise NotImplementedError

    def grow(self, row: Words) -> None:
        """Make a row longer, in place."""
        raise NotImplementedError

    def rise(self, place: Any, decision: Decision, most: int = LOCKED) -> None:
        """Raise the key's level after a decision, at most to ``most``: see `levels`."""
        raise NotImplementedError

    def remove(self, place: Any) -> None:
        raise NotImplementedError

    def hit(self, key: str, cost: int) -> Decision:
        cost, place = check_cost(cost), self.place(key)
        with self.locked():
            return self.take(place, cost, self.ready())

    def peek(self, key: str, cost: int) -> Decision:
        cost, place = check_cost(cost), self.place(key)
        with self.locked():
            return self.look(place, cost, self.ready())

    def attempt(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        cost, place = check_cost(cost), self.place(key)
        with self.locked():
            now = self.ready()
            if patience != ENDLESS:
                seen = self.look(place, cost, now)
                if seen and seen._delay > patience:
                    return seen.refused(seen._delay - patience)
            return self.take(place, cost, now, ATTEMPT)

    def charge(self, key: str, cost: int) -> None:
        cost, place = check_cost(cost), self.place(key)
        with self.locked():
            now = self.ready()
            with self.change(place) as row:
                while self.algorithm.charge(row, cost, now) == NO_ROOM:
                    self.grow(row)
            self.rise(place, self.look(place, 1, now), HALF)

    def refund(self, key: str, cost: int, mark: int = NO_MARK, kept: int = 0) -> None:
        cost, place = check_cost(cost), self.place(key)
        with self.locked():
            now = self.ready()
            if self.find(place) is not None:
                with self.change(place) as row:
                    self.algorithm.refund(row, cost, now, mark, kept)

    def reserve(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        cost, place = check_cost(cost), self.place(key)
        with self.locked():
            now = self.ready()
            if cost > self.algorithm.most:
                return self.look(place, cost, now)
            out = new_decision(self.limit)
            with self.change(place) as row:
                self.algorithm.reserve(row, cost, now, patience, out)
            self.rise(place, out, REFUSED)
            return out

    def cancel(self, key: str, cost: int, mark: int, kept: int = 0) -> None:
        cost, place = check_cost(cost), self.place(key)
        with self.locked():
            now = self.ready()
            if self.find(place) is not None:
                with self.change(place) as row:
                    self.algorithm.cancel(row, cost, now, mark, kept)

    def reset(self, key: str) -> None:
        place = self.place(key)
        with self.locked():
            self.now()  # raises if the store is closed
            self.remove(place)

    def hit_many(self, keys: Iterable[str], cost: int) -> list[Decision]:
        cost, places = check_cost(cost), [self.place(key) for key in keys]
        with self.locked():
            now = self.ready()
            return [self.take(place, cost, now) for place in places]

    # Under the lock ----------------------------------------------------------

    def ready(self) -> int:
        """The time, with the algorithm prepared for it."""
        now = self.now()
        if not self.algorithm.valid_from <= now < self.algorithm.valid_until:
            self.algorithm.refresh(now)
        return now

    def take(self, place: Any, cost: int, now: int, how: int = HIT) -> Decision:
        if cost > self.algorithm.most:
            return self.look(place, cost, now)
        out = new_decision(self.limit)
        with self.change(place) as row:
            while self.algorithm.decide(row, cost, now, 0, how, out) == NO_ROOM:
                self.grow(row)
        self.rise(place, out, LOCKED if how == HIT else REFUSED)
        return out

    def look(self, place: Any, cost: int, now: int) -> Decision:
        out = new_decision(self.limit)
        most = self.algorithm.most
        row = self.find(place) or self.blank
        self.algorithm.decide(row, min(cost, most + 1), now, 0, LOOK, out)
        if cost > most:
            out._allowed = False
            out._retry = -1
        return out

    def set_length(self, row: Words, words: int) -> None:
        at = self.algorithm.length_at
        if at >= 0:
            row[at] = words - (at - 1)


def hit_each(wanted: list[tuple[PureCounters, str, int]], attempt: bool = False) -> list[Decision]:
    """See `Store.hit_each`; every item's counters are of one store."""
    items = [(counters, counters.place(key), check_cost(cost)) for counters, key, cost in wanted]
    with items[0][0].locked():
        moments = [counters.ready() for counters, _, _ in items]
        looked = [
            counters.look(place, cost, now)
            for (counters, place, cost), now in zip(items, moments, strict=True)
        ]
        refused = not all(looked)
        how = ATTEMPT if attempt else HIT
        # A limit that refuses takes nothing, but may have to record it (lockout).
        return [
            counters.take(place, cost, now, how) if not refused or not seen else seen
            for (counters, place, cost), now, seen in zip(items, moments, looked, strict=True)
        ]
