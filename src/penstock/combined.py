"""Several limits that are decided as one: all of them pass, or nothing is taken from any.

``Limiter("5/minute; 100/day")`` asks these counters as it would those of a single limit. They ask
the store for all limits in one step, by `Store.hit_each`, and answer with the decision that
speaks for them: see `penstock.stores.base.pick`.

What is taken from each limit has a mark of its own, by which it is given back exactly. A flow that
may give back works on ``parts``, and keeps the decision of each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

from penstock.algorithms.words import NO_MARK
from penstock.decision import Decision
from penstock.errors import PenstockError
from penstock.limits import Limit, limits_of
from penstock.stores.base import ENDLESS, Counters, Store, check_key, speaking

Item = tuple[Counters, str, int]


class CombinedCounters(Counters):
    """The counters of several limits of one store, with one key for all of them.

    ``limit`` is the first of the limits, ``parts`` are the counters of each.
    """

    def __init__(self, store: Store, parts: tuple[Counters, ...]) -> None:
        super().__init__(parts[0].limit, parts[0].clock)
        self.store = store
        self.parts = parts

    def items(self, key: str, cost: int) -> list[Item]:
        """What to ask of the store."""
        return [(counters, key, cost) for counters in self.parts]

    def hit(self, key: str, cost: int) -> Decision:
        return speaking(self.store.hit_each(self.items(key, cost)))

    def whole(self) -> Counters:
        return CombinedCounters(self.store, tuple(counters.whole() for counters in self.parts))

    def peek(self, key: str, cost: int) -> Decision:
        return speaking(self._each("peek", key, cost))

    def attempt(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        if patience != ENDLESS:
            raise PenstockError("several limits cannot be attempted with patience")
        return speaking(self.store.hit_each(self.items(key, cost), attempt=True))

    def charge(self, key: str, cost: int) -> None:
        self._each("charge", key, cost)

    def refund(self, key: str, cost: int, mark: int = NO_MARK, kept: int = 0) -> None:
        if mark != NO_MARK:
            raise PenstockError("each of several limits has a mark of its own")
        self._each("refund", key, cost)

    def reset(self, key: str) -> None:
        self._each("reset", key)

    def clear(self) -> None:
        for counters in self.parts:
            counters.clear()

    def hit_many(self, keys: Iterable[str], cost: int) -> list[Decision]:
        wanted = [self.items(check_key(key), cost) for key in keys]
        return [speaking(decisions) for decisions in self.store.hit_groups(wanted)]

    def submit(self, verb: str, *args: Any) -> Awaitable[Any]:
        if verb == "hit":
            return self._hit_async(self.items(*args))
        if verb == "hit_many":
            return self._hit_many_async(*args)
        calls = [counters.submit(verb, *args) for counters in self.parts]
        return _speaking_of(calls) if verb == "peek" else asyncio.gather(*calls)

    def _each(self, verb: str, *args: Any) -> list[Any]:
        return self.store.call_each(verb, [(counters, args) for counters in self.parts])

    async def _hit_async(self, items: list[Item]) -> Decision:
        return speaking(await self.store.hit_each_async(items))

    async def _hit_many_async(self, keys: Iterable[str], cost: int) -> list[Decision]:
        wanted = [self.items(check_key(key), cost) for key in keys]
        return list(await asyncio.gather(*[self._hit_async(items) for items in wanted]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CombinedCounters) and self.parts == other.parts

    def __hash__(self) -> int:
        """Equal for equal parts: whoever waits for the same limits waits in one queue."""
        return hash(self.parts)


async def _speaking_of(calls: Iterable[Awaitable[Decision]]) -> Decision:
    return speaking(await asyncio.gather(*calls))


def counters_of(store: Store, limit: Limit | str, name: str | None = None) -> Counters:
    """The store's counters of one limit, or of the several that a text names."""
    names = () if name is None else (name,)  # a store of somebody else may know no names
    parts = [store.counters(each, *names) for each in limits_of(limit)]
    return parts[0] if len(parts) == 1 else CombinedCounters(store, tuple(parts))


def parts_of(counters: Counters) -> tuple[Counters, ...]:
    """The counters of each limit: of a single one, itself."""
    return counters.parts if isinstance(counters, CombinedCounters) else (counters,)
