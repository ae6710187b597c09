"""AsyncConcurrencyLimiter: `ConcurrencyLimiter` for tasks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Hashable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.clock import Clock
from penstock.concurrency.decorate import By
from penstock.concurrency.limiter import EVERYBODY, ConcurrencyLimiter
from penstock.concurrency.local_slots import State
from penstock.concurrency.queue_policy import NORMAL
from penstock.concurrency.size import Size
from penstock.concurrency.slot import AsyncSlot
from penstock.decorators import Key
from penstock.durations import Duration
from penstock.events import Hook

if TYPE_CHECKING:
    from penstock.stores.redis import RedisStore

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


class AsyncConcurrencyLimiter:
    """`ConcurrencyLimiter` for tasks: the same options, ``async with`` instead of ``with``.

    A task may be cancelled at any point, even at the moment it is handed its slot:
    no slot is lost, and the next waiter in the queue gets it. One limiter may serve several event
    loops.
    """

    def __init__(
        self,
        limit: int | Size,
        *,
        waiting: int = 0,
        patience: Duration = 10.0,
        fair: bool = False,
        shares: Mapping[int, float] | None = None,
        store: RedisStore | None = None,
        lease: Duration = 10.0,
        on_failure: str = "local",
        share: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._limiter = ConcurrencyLimiter(
            limit, waiting=waiting, patience=patience, fair=fair, shares=shares, store=store,
            lease=lease, on_failure=on_failure, share=share, clock=clock,
        )  # fmt: skip

    def slot(
        self,
        key: str = EVERYBODY,
        *,
        priority: int = NORMAL,
        by: Hashable = None,
        timeout: float | None = None,
    ) -> AsyncSlot:
        """``async with concurrency.slot(key):``, see `ConcurrencyLimiter.slot`."""
        return self._limiter._slot_async(key, priority, by, timeout)

    def limit(
        self,
        key: Key | None = None,
        *,
        priority: int = NORMAL,
        by: By = None,
        timeout: float | None = None,
    ) -> Callable[[F], F]:
        """Run an async function in a slot: see `ConcurrencyLimiter.limit`.

        ``key`` and ``by`` may be async as well.
        """
        decorator = self._limiter.limit(key, priority=priority, by=by, timeout=timeout)

        def decorate(function: F) -> F:
            made = decorator(function)
            if not inspect.iscoroutinefunction(function):
                raise TypeError(f"{function!r} is not async: use ConcurrencyLimiter.limit for it")
            return made

        return decorate

    def state(self, key: str = EVERYBODY) -> State:
        """How many run and wait now, in this process, and how many may run at once."""
        return self._limiter.state(key)

    def subscribe(self, hook: Hook) -> None:
        """Call ``hook`` with events about shared slots: see `penstock.events`."""
        self._limiter.subscribe(hook)

    def unsubscribe(self, hook: Hook) -> None:
        """Stop calling ``hook``."""
        self._limiter.unsubscribe(hook)

    async def close(self) -> None:
        """Close the connections of this event loop; other loops keep theirs.

        Without a ``store`` there is nothing to close. The store itself is closed by its
        owner.
        """
        await self._limiter.close_async()

    async def __aenter__(self) -> AsyncConcurrencyLimiter:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Async{self._limiter!r}"
