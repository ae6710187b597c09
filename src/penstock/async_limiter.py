"""AsyncLimiter: the verbs of `Limiter` as coroutines."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from penstock.arguments import Item, check_keys, merge_items
from penstock.decision import Decision
from penstock.decorators import AsyncSlot, Key
from penstock.limit import Limit
from penstock.limiter import Limiter
from penstock.reservation import AsyncReservation
from penstock.steps import drive_async
from penstock.stores.base import Store, speaking

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


class AsyncLimiter:
    """`Limiter` for coroutines: the same verbs, the same answers, over the same stores.

    A task that waits is served in order of arrival, and may be cancelled at any
    point without taking anything with it.
    """

    def __init__(self, limit: Limit | str | None = None, store: Store | None = None) -> None:
        self._limiter = Limiter(limit, store)
        self._waits = self._limiter.store.waits

    @property
    def store(self) -> Store:
        """Where the state lives."""
        return self._limiter.store

    async def hit(self, key: str, limit: Limit | str | None = None, cost: int = 1) -> Decision:
        """May ``key`` go ahead? Takes ``cost`` units if so. Most callers want this one."""
        if self._waits:
            decision: Decision = await self._limiter.counters(limit).submit("hit", key, cost)
            return decision
        return self._limiter.hit(key, limit, cost)

    async def peek(self, key: str, limit: Limit | str | None = None, cost: int = 1) -> Decision:
        """Whether `hit` would pass, and what remains now. Takes nothing, starts no lockout."""
        if self._waits:
            decision: Decision = await self._limiter.counters(limit).submit("peek", key, cost)
            return decision
        return self._limiter.peek(key, limit, cost)

    async def hit_many(
        self, keys: Iterable[str], limit: Limit | str | None = None, cost: int = 1
    ) -> list[Decision]:
        """Independent decisions at one moment, in one call."""
        if self._waits:
            decisions: list[Decision]
            decisions = await self._limiter.counters(limit).submit(
                "hit_many", check_keys(keys), cost
            )
            return decisions
        return self._limiter.hit_many(keys, limit, cost)

    async def hit_all(self, items: Iterable[Item]) -> Decision:
        """All of several limits pass, or nothing is taken from any: see `Limiter.hit_all`."""
        limiter = self._limiter
        return speaking(await limiter.store.hit_each_async(merge_items(limiter.counters, items)))

    async def refund(self, key: str, cost: int = 1, limit: Limit | str | None = None) -> None:
        """Give units back, never beyond full."""
        await self._limiter.counters(limit).submit("refund", key, cost)

    async def reset(self, key: str, limit: Limit | str | None = None) -> None:
        """Forget the key: its next hit finds the limit untouched."""
        await self._limiter.counters(limit).submit("reset", key)

    async def wait(
        self,
        key: str,
        limit: Limit | str | None = None,
        cost: int = 1,
        timeout: float | None = None,
    ) -> Decision:
        """Suspend until ``key`` may go ahead, first come, first served: see `Limiter.wait`."""
        limiter = self._limiter
        return await drive_async(limiter.begin(limiter.task_waiters, key, limit, cost, timeout))

    def reserve(
        self, key: str, limit: Limit | str | None = None, cost: int = 1
    ) -> AsyncReservation:
        """``async with limiter.reserve(key, cost=n) as r: await r.settle(used)``."""
        limiter = self._limiter
        return AsyncReservation(limiter.store, limiter.counters(limit), key, cost)

    def slot(
        self,
        key: str,
        limit: Limit | str | None = None,
        cost: int = 1,
        timeout: float | None = None,
    ) -> AsyncSlot:
        """``async with limiter.slot(key):`` waits for its turn, or raises `LimitExceeded`."""
        limiter = self._limiter
        return AsyncSlot(
            lambda key: limiter.begin(limiter.task_waiters, key, limit, cost, timeout), key
        )

    def limit(
        self,
        key: Key | None = None,
        limit: Limit | str | None = None,
        cost: int = 1,
        timeout: float | None = 0,
    ) -> Callable[[F], F]:
        """Limit the calls of an async function: see `Limiter.limit`. ``key`` may be async, too."""

        def decorate(function: F) -> F:
            if not inspect.iscoroutinefunction(function):
                raise TypeError(f"{function!r} is not async: use Limiter.limit")
            return self._limiter.limit(key, limit, cost, timeout)(function)

        self._limiter.counters(limit)
        return decorate
