"""AsyncLimiter: the verbs of `Limiter` as coroutines."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, Never, TypeVar, cast, overload

from penstock.arguments import ALL_KEYS, AllKeys, check_keys, merge_items, patience_ns, timeout_ns
from penstock.arguments import Item as KeyAndLimit
from penstock.decision import Decision
from penstock.decorators import (
    AsyncSlot,
    Cost,
    Key,
    decorate,
    is_async_function,
    is_function,
)
from penstock.durations import Duration
from penstock.flow_steps import drive_async
from penstock.limiter import Limiter
from penstock.limits import Limit
from penstock.misuse import (
    ALL,
    ASYNC_BLOCK,
    HIT,
    PEEK,
    TURN,
    NotAVerb,
    wrong_arguments,
    wrong_option,
)
from penstock.partial_hits import PartialHit, charge, hit_up_to
from penstock.pending import awaited, mark_async, pending_hit
from penstock.reservation import AsyncReservation
from penstock.stores.base import Store, check_cost, check_key, speaking
from penstock.streams import (
    WAIT,
    check_async_items,
    check_on_refused,
    limited_async,
    stream_key,
)
from penstock.waiting import wait

Item = TypeVar("Item")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any] | AsyncIterator[Any]])


class AsyncLimiter:
    """`Limiter` for coroutines: the same verbs, the same answers, over the same stores.

    A task that waits is served in order of arrival, and may be cancelled at any
    point without taking anything with it.
    """

    __signature__ = inspect.signature(Limiter)
    # Verbs of other libraries.
    acquire = NotAVerb("acquire", TURN)
    try_acquire = NotAVerb("try_acquire", HIT)
    consume = NotAVerb("consume", HIT)
    test = NotAVerb("test", PEEK)
    check = NotAVerb("check", HIT)
    clear = NotAVerb("clear", ALL)
    has_capacity = NotAVerb("has_capacity", PEEK)
    __aenter__ = NotAVerb("__aenter__", ASYNC_BLOCK)
    __enter__ = NotAVerb("__enter__", ASYNC_BLOCK)

    def __init__(
        self,
        limit: Limit | str | None = None,
        store: Store | str | None = None,
        *more: Never,
        name: str | None = None,
        chance: Callable[[], float] | None = None,
        enabled: bool | None = None,
        **unknown: Never,
    ) -> None:
        wrong = wrong_arguments("AsyncLimiter", limit, store, more, unknown)
        if wrong is not None:
            raise wrong
        self._limiter = Limiter(limit, store, name=name, chance=chance, enabled=enabled)
        self._default = self._limiter.default
        self._waits = self._limiter.store.waits

    @property
    def store(self) -> Store:
        """Where the state lives."""
        return self._limiter.store

    @property
    def name(self) -> str | None:
        """The name that its counts are kept apart by, if it has one."""
        return self._limiter.name

    @mark_async
    def hit(
        self, key: str, limit: Limit | str | None = None, cost: int = 1
    ) -> Coroutine[Any, Any, Decision]:
        """May ``key`` go ahead? Takes ``cost`` units if so. Most callers want this one."""
        counters = self._default
        if limit is not None or counters is None:
            counters = self._limiter.counters(limit)
        return pending_hit(counters, key, cost, self._waits)

    @awaited
    async def peek(
        self, key: str, limit: Limit | str | None = None, cost: int = 1, *, whole: bool = False
    ) -> Decision:
        """Whether `hit` would pass, and what remains now: see `Limiter.peek`."""
        counters = self._limiter.counters(limit)
        decision: Decision = await (counters.whole() if whole else counters).submit(
            "peek", key, cost
        )
        return decision

    @awaited
    async def hit_many(
        self, keys: Iterable[str], limit: Limit | str | None = None, cost: int = 1
    ) -> list[Decision]:
        """Independent decisions at one moment, in one call."""
        counters = self._limiter.counters(limit)
        decisions: list[Decision] = await counters.submit("hit_many", check_keys(keys), cost)
        return decisions

    @awaited
    async def hit_all(self, items: Iterable[KeyAndLimit]) -> Decision:
        """All of several limits pass, or nothing is taken from any: see `Limiter.hit_all`."""
        limiter = self._limiter
        return speaking(await limiter.store.hit_each_async(merge_items(limiter.counters, items)))

    @awaited
    async def charge(self, key: str, cost: int = 1, limit: Limit | str | None = None) -> Decision:
        """Take ``cost`` whether it fits or not: see `Limiter.charge`."""
        checked = check_key(key), check_cost(cost)
        return await drive_async(charge(self._limiter.counters(limit), *checked))

    @awaited
    async def hit_up_to(self, key: str, most: int, limit: Limit | str | None = None) -> PartialHit:
        """Take as much as there is, at most ``most`` units: see `Limiter.hit_up_to`."""
        checked = check_key(key), check_cost(most)
        limiter = self._limiter
        return await drive_async(hit_up_to(limiter.store, limiter.counters(limit), *checked))

    def limited(
        self,
        items: AsyncIterable[Item] | Iterable[Item],
        *,
        key: str | None = None,
        limit: Limit | str | None = None,
        cost: int = 1,
        timeout: Duration | None = None,
        on_refused: str = "wait",
    ) -> AsyncIterator[Item]:
        """``async for message in limiter.limited(websocket, key=user)``: see `Limiter.limited`.

        A WebSocket of Starlette or FastAPI is given as ``websocket.iter_text()``.
        """
        most = timeout if check_on_refused(on_refused) == WAIT else 0
        limiter, name, units = self._limiter, stream_key(key), check_cost(cost)
        counters, patience = limiter.counters(limit), timeout_ns(most)
        check_async_items(items)

        def decide() -> Coroutine[Any, Any, Decision]:
            return drive_async(wait(limiter.task_waiters, counters, name, units, patience))

        return limited_async(items, name, decide, on_refused)

    async def refund(self, key: str, cost: int = 1, limit: Limit | str | None = None) -> None:
        """Give units back, never beyond full."""
        await self._limiter.counters(limit).submit("refund", key, cost)

    async def reset(self, key: str | AllKeys = ALL_KEYS, limit: Limit | str | None = None) -> None:
        """Forget the key, or all keys: see `Limiter.reset`."""
        counters = self._limiter.counters(limit)
        if isinstance(key, AllKeys):
            await counters.submit("clear")
        else:
            await counters.submit("reset", key)

    @awaited
    async def wait(
        self,
        key: str,
        limit: Limit | str | None = None,
        cost: int = 1,
        timeout: Duration | None = None,
        jitter: Duration | None = None,
    ) -> Decision:
        """Suspend until ``key`` may go ahead, first come, first served: see `Limiter.wait`."""
        limiter = self._limiter
        flow = limiter.begin(limiter.task_waiters, key, limit, cost, timeout, jitter)
        return await drive_async(flow)

    def reserve(
        self,
        key: str,
        limit: Limit | str | None = None,
        cost: int = 1,
        max_delay: Duration | None = None,
    ) -> AsyncReservation:
        """``async with limiter.reserve(key, cost=n) as r: await r.settle(used)``.

        With ``max_delay``, for later: see `Limiter.reserve`.
        """
        limiter, patience = self._limiter, patience_ns(max_delay)
        return AsyncReservation(limiter.store, limiter.counters(limit), key, cost, patience)

    def slot(
        self,
        key: str,
        limit: Limit | str | None = None,
        cost: int = 1,
        timeout: Duration | None = None,
    ) -> AsyncSlot:
        """``async with limiter.slot(key):`` waits for its turn, or raises `LimitExceeded`."""
        limiter = self._limiter
        return AsyncSlot(
            lambda key: limiter.begin(limiter.task_waiters, key, limit, cost, timeout), key
        )

    @overload
    def limit(self, limit: F, /) -> F: ...

    @overload
    def limit(
        self,
        limit: Limit | str | None = None,
        *,
        key: Key | None = None,
        cost: Cost = 1,
        timeout: Duration | None = 0,
        enabled: bool = True,
    ) -> Callable[[F], F]: ...

    def limit(
        self,
        limit: Callable[..., Any] | Limit | str | None = None,
        *,
        key: Key | None = None,
        cost: Cost = 1,
        timeout: Duration | None = 0,
        enabled: bool = True,
        **unknown: Never,
    ) -> Any:
        """Limit the calls of an async function: see `Limiter.limit`.

        The functions ``key`` and ``cost`` may be async, too.
        """
        if unknown:
            raise wrong_option("@limiter.limit", *unknown.popitem())
        if is_function(limit):
            return self.limit(key=key, cost=cost, timeout=timeout, enabled=enabled)(limit)
        own = cast(Limit | str | None, limit)
        limited = self._limiter.limit(own, key=key, cost=cost, timeout=timeout, enabled=enabled)

        def wrap(function: F) -> F:
            if not is_async_function(function) and not inspect.isasyncgenfunction(function):
                raise TypeError(f"{function!r} is not async: use Limiter.limit")
            return limited(function)

        return lambda function: decorate(function, wrap)
