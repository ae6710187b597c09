"""ConcurrencyLimiter: how many at once, for threads. `AsyncConcurrencyLimiter` for tasks."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Hashable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.arguments import timeout_ns
from penstock.clock import MONOTONIC, Clock
from penstock.concurrency.decorate import By, in_slots
from penstock.concurrency.local_slots import LocalSlots, State
from penstock.concurrency.queue_policy import NORMAL, QueuePolicy, check_priority
from penstock.concurrency.size import Size
from penstock.concurrency.slot import AsyncSlot, Slot
from penstock.decorators import Key
from penstock.durations import Duration
from penstock.events import Hook, Hooks
from penstock.stores.base import Store, check_clock, check_key

if TYPE_CHECKING:
    from penstock.stores.redis import RedisStore

F = TypeVar("F", bound=Callable[..., Any])

EVERYBODY = "all"


class ConcurrencyLimiter:
    """At most ``limit`` run at once for each key; more may wait in a queue.

    - ``limit``: a number, or a `Size` that adapts
    - ``waiting``: how many may wait in the queue of a key; further calls are refused
    - ``patience``: the seconds of waiting that are worth one step of priority
    - ``fair``: callers with different ``by`` take turns
    - ``shares``: which part of the slots a priority may use, as ``{LOW: 0.5, NORMAL: 0.9}``
    - ``store``: a `RedisStore`, to share the slots with all processes that use the same server
    - ``lease``: how long until the slots of a process that died are free again
    - ``on_failure``: what happens while the store cannot be asked: ``"local"``, this process
      has ``share`` of the slots; ``"open"``, every call runs; ``"closed"``, none does

    Threads and tasks may share one limiter, over any number of event loops.
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
        policy = QueuePolicy(limit, waiting, patience, fair, shares)
        self._hooks = Hooks()
        clock = check_clock(clock) or MONOTONIC
        if store is None:
            self._slots = LocalSlots(policy, clock)
        else:
            self._slots = _redis_slots(policy, clock, store, lease, on_failure, share, self._hooks)
        _limiters.add(self)

    def slot(
        self,
        key: str = EVERYBODY,
        *,
        priority: int = NORMAL,
        by: Hashable = None,
        timeout: float | None = None,
    ) -> Slot:
        """``with concurrency.slot(key):`` runs the block in a slot, or raises `NoSlot`.

        It waits in the queue for ``timeout`` seconds, or as long as it takes; with 0 it does
        not wait. `LineFull` means that there was no place in the queue or no time to wait,
        `WaitedTooLong` that the time was up.
        """
        return Slot(self._slots, *_checked(key, priority, by, timeout))

    def limit(
        self,
        key: Key | None = None,
        *,
        priority: int = NORMAL,
        by: By = None,
        timeout: float | None = None,
    ) -> Callable[[F], F]:
        """Run a function in a slot, sync or async; a call that gets none raises `NoSlot`.

        ``key`` is a string, or a function of the call's arguments that returns one; by
        default all calls of the function share one. ``by`` may be such a function as well.
        """
        # A wrong argument is an error here, not in the first call.
        _checked(EVERYBODY, priority, None, timeout)
        return in_slots(
            key,
            by,
            lambda key, by: self.slot(key, priority=priority, by=by, timeout=timeout),
            lambda key, by: self._slot_async(key, priority, by, timeout),
        )

    def state(self, key: str = EVERYBODY) -> State:
        """How many run and wait now, in this process, and how many may run at once."""
        return self._slots.state(check_key(key))

    def subscribe(self, hook: Hook) -> None:
        """Call ``hook`` with events about shared slots: see `penstock.events`."""
        self._hooks.add(hook)

    def unsubscribe(self, hook: Hook) -> None:
        """Stop calling ``hook``."""
        self._hooks.remove(hook)

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
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ConcurrencyLimiter({self._slots!r})"

    def _slot_async(
        self, key: str, priority: int, by: Hashable, timeout: float | None
    ) -> AsyncSlot:
        return AsyncSlot(self._slots, *_checked(key, priority, by, timeout))


def _checked(
    key: str, priority: int, by: Hashable, timeout: float | None
) -> tuple[str, int, Hashable, int | None]:
    try:
        hash(by)
    except TypeError:
        raise TypeError(f"by is hashable, such as a user's name, not {by!r:.100}") from None
    return check_key(key), check_priority(priority), by, timeout_ns(timeout)


def _redis_slots(
    policy: QueuePolicy,
    clock: Clock,
    store: Store,
    lease: Duration,
    on_failure: str,
    share: float | None,
    hooks: Hooks,
) -> LocalSlots:
    # Imported here: only limiters with a store need redis-py.
    from penstock.concurrency.redis_slots import redis_slots

    return redis_slots(policy, clock, store, lease, on_failure, share, hooks)


_limiters: weakref.WeakSet[ConcurrencyLimiter] = weakref.WeakSet()


def _after_fork() -> None:
    for limiter in [*_limiters]:
        limiter._slots.start_over()


os.register_at_fork(after_in_child=_after_fork)
