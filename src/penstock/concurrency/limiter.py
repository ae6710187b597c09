"""ConcurrencyLimiter: how many calls run at once. `AsyncConcurrencyLimiter` for tasks."""

from __future__ import annotations

import functools
import inspect
import os
import weakref
from collections.abc import Callable, Coroutine, Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, overload

from penstock.arguments import timeout_ns
from penstock.clock import MONOTONIC, Clock
from penstock.concurrency.local_slots import LocalSlots, State
from penstock.concurrency.queue_policy import NORMAL, QueuePolicy, Size, check_priority
from penstock.concurrency.slot import AsyncSlot, Slot
from penstock.decorators import Key, checked_key, decorate, is_async_function, is_function
from penstock.durations import Duration
from penstock.errors import InvalidKey
from penstock.events import Hook, Hooks
from penstock.misuse import ASYNC_BLOCK, BLOCK, NotAVerb
from penstock.stores.base import check_clock, check_key
from penstock.stores.url import store_from_url

if TYPE_CHECKING:
    from penstock.stores.redis import RedisStore

F = TypeVar("F", bound=Callable[..., Any])
AsyncF = TypeVar("AsyncF", bound=Callable[..., Coroutine[Any, Any, Any]])
AnySlot = TypeVar("AnySlot", Slot, AsyncSlot)

# A function of the call's arguments, or one value for all calls.
By = Hashable | Callable[..., Any]

EVERYBODY = "all"


class _Limiter:
    """The common part of both limiters."""

    def __init__(
        self,
        limit: int | Size,
        *,
        waiting: int = 0,
        patience: Duration = 10.0,
        fair: bool = False,
        shares: Mapping[int, float] | None = None,
        store: RedisStore | str | None = None,
        lease: Duration = 10.0,
        on_failure: str = "local",
        share: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        policy = QueuePolicy(limit, waiting, patience, fair, shares)
        self._hooks = Hooks()
        self._has_store = store is not None
        clock = check_clock(clock) or MONOTONIC
        if store is None:
            self._slots = LocalSlots(policy, clock)
        else:
            # Imported here: only limiters with a store need redis-py.
            from penstock.concurrency.redis_slots import RedisSlots

            where: Any = store_from_url(store) if isinstance(store, str) else store
            self._slots = RedisSlots(policy, clock, where, lease, on_failure, share, self._hooks)
        _limiters.add(self)

    def state(self, key: str = EVERYBODY) -> State:
        """How many run and wait now, in this process, and how many may run at once."""
        return self._slots.state(check_key(key))

    def subscribe(self, hook: Hook) -> None:
        """Call ``hook`` with events about shared slots: see `penstock.events`."""
        self._hooks.add(hook)

    def unsubscribe(self, hook: Hook) -> None:
        """Stop calling ``hook``."""
        self._hooks.remove(hook)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._slots!r})"

    def _slot(
        self, kind: type[AnySlot], key: str, priority: int, by: Hashable, timeout: Duration | None
    ) -> AnySlot:
        try:
            hash(by)
        except TypeError:
            raise TypeError(f"by is hashable, such as a user's name, not {by!r:.100}") from None
        return kind(self._slots, check_key(key), check_priority(priority), by, timeout_ns(timeout))

    def _decorator(
        self, key: Key | None, priority: int, by: By, timeout: Duration | None
    ) -> Callable[[F], F]:
        # A wrong argument is an error here, not in the first call.
        self._slot(Slot, EVERYBODY, priority, None, timeout)

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise TypeError(
                    f"{function!r} is a generator, which runs after it was called: use"
                    " 'with concurrency.slot(...)' inside it"
                )
            is_async = is_async_function(function)
            if inspect.iscoroutinefunction(by) and not is_async:
                raise TypeError(f"{function!r} is not async, so its by cannot be either")
            name = checked_key(key, function, is_async)

            @functools.wraps(function)
            def in_slot(*args: Any, **kwargs: Any) -> Any:
                slot_key, group = (_of_call(value, args, kwargs) for value in (name, by))
                with self._slot(Slot, slot_key, priority, group, timeout):
                    return function(*args, **kwargs)

            @functools.wraps(function)
            async def in_slot_async(*args: Any, **kwargs: Any) -> Any:
                values = [_of_call(value, args, kwargs) for value in (name, by)]
                slot_key, group = [await v if inspect.isawaitable(v) else v for v in values]
                async with self._slot(AsyncSlot, slot_key, priority, group, timeout):
                    return await function(*args, **kwargs)

            return in_slot_async if is_async else in_slot

        return lambda function: decorate(function, wrap)

    def _check_closeable(self, instead: str) -> None:
        """Without a store there is nothing to close: the block was meant to take a slot."""
        if not self._has_store:
            raise TypeError(f"a block around a limiter takes no slot: {instead}")


class ConcurrencyLimiter(_Limiter):
    """At most ``limit`` run at once for each key; more may wait in a queue.

    - ``limit``: a number, or a `Size` that adapts
    - ``waiting``: how many may wait in the queue of a key; further calls are refused
    - ``patience``: the seconds of waiting that are worth one step of priority
    - ``fair``: callers with different ``by`` take turns
    - ``shares``: which part of the slots a priority may use, as ``{LOW: 0.5, NORMAL: 0.9}``
    - ``store``: a `RedisStore` or its URL, to share the slots with all processes that use the
      same server
    - ``lease``: how long until the slots of a process that died are free again
    - ``on_failure``: what happens while the store cannot be asked: ``"local"``, this process
      has ``share`` of the slots; ``"open"``, every call runs; ``"closed"``, none does

    Threads and tasks may share one limiter, over any number of event loops.
    """

    acquire = NotAVerb("acquire", BLOCK)

    def slot(
        self,
        key: str = EVERYBODY,
        *,
        priority: int = NORMAL,
        by: Hashable = None,
        timeout: Duration | None = None,
    ) -> Slot:
        """``with concurrency.slot(key):`` runs the block in a slot, or raises `NoSlot`.

        It waits in the queue for ``timeout`` seconds, or as long as it takes; with 0 it does
        not wait. `LineFull` means that there was no place in the queue or no time to wait,
        `WaitedTooLong` that the time was up.
        """
        return self._slot(Slot, key, priority, by, timeout)

    @overload
    def limit(self, function: F, /) -> F: ...

    @overload
    def limit(
        self,
        *,
        key: Key | None = None,
        priority: int = NORMAL,
        by: By = None,
        timeout: Duration | None = None,
    ) -> Callable[[F], F]: ...

    def limit(
        self,
        function: Callable[..., Any] | None = None,
        *,
        key: Key | None = None,
        priority: int = NORMAL,
        by: By = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Run a function in a slot, sync or async; a call that gets none raises `NoSlot`.

        ``@concurrency.limit``, or ``@concurrency.limit(key=...)``. ``key`` is a string, or a
        function of the call's arguments that returns one; by default all calls of the
        function share one. ``by`` may be such a function as well.
        """
        if _is_bare(function):
            return self.limit(key=key, priority=priority, by=by, timeout=timeout)(function)
        return self._decorator(key, priority, by, timeout)

    def close(self) -> None:
        """Close the connections of threads and stop the thread that renews leases.

        Without a ``store`` there is nothing to close. The store itself is closed by its
        owner.
        """
        self._slots.close()

    async def close_async(self) -> None:
        """The same for the connections of this event loop."""
        await self._slots.close_async()

    def __enter__(self) -> ConcurrencyLimiter:
        """To be closed at the end of the block. This takes no slot: see `slot`."""
        self._check_closeable(BLOCK)
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncConcurrencyLimiter(_Limiter):
    """`ConcurrencyLimiter` for tasks: the same options, ``async with`` instead of ``with``.

    A task may be cancelled at any point, even at the moment it is handed its slot: no slot is
    lost, and the next waiter gets it. One limiter may serve several event loops.
    """

    acquire = NotAVerb("acquire", ASYNC_BLOCK)

    def slot(
        self,
        key: str = EVERYBODY,
        *,
        priority: int = NORMAL,
        by: Hashable = None,
        timeout: Duration | None = None,
    ) -> AsyncSlot:
        """``async with concurrency.slot(key):``, see `ConcurrencyLimiter.slot`."""
        return self._slot(AsyncSlot, key, priority, by, timeout)

    @overload
    def limit(self, function: AsyncF, /) -> AsyncF: ...

    @overload
    def limit(
        self,
        *,
        key: Key | None = None,
        priority: int = NORMAL,
        by: By = None,
        timeout: Duration | None = None,
    ) -> Callable[[AsyncF], AsyncF]: ...

    def limit(
        self,
        function: Callable[..., Any] | None = None,
        *,
        key: Key | None = None,
        priority: int = NORMAL,
        by: By = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Run an async function in a slot: see `ConcurrencyLimiter.limit`.

        ``key`` and ``by`` may be async as well.
        """
        if _is_bare(function):
            return self.limit(key=key, priority=priority, by=by, timeout=timeout)(function)
        decorator = self._decorator(key, priority, by, timeout)

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            limited = decorator(function)
            if not is_async_function(function):
                raise TypeError(f"{function!r} is not async: use ConcurrencyLimiter.limit for it")
            return limited

        return lambda function: decorate(function, wrap)

    async def close(self) -> None:
        """Close the connections of this event loop; see `ConcurrencyLimiter.close`."""
        await self._slots.close_async()

    async def __aenter__(self) -> AsyncConcurrencyLimiter:
        """To be closed at the end of the block. This takes no slot: see `slot`."""
        self._check_closeable(ASYNC_BLOCK)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _is_bare(function: object) -> TypeGuard[Callable[..., Any]]:
    """Whether a decorator was written without parentheses; a key is given by name."""
    if function is not None and not is_function(function):
        raise InvalidKey(f"a key is given by name: limit(key={function!r:.100})")
    return function is not None


def _of_call(value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return value(*args, **kwargs) if callable(value) else value


_limiters: weakref.WeakSet[_Limiter] = weakref.WeakSet()


def _after_fork() -> None:
    for limiter in [*_limiters]:
        limiter._slots.start_over()


os.register_at_fork(after_in_child=_after_fork)
