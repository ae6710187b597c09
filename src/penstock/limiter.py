# cython: binding=True
# Bound functions keep their signatures, for editors and for help().
"""Limiter: the verbs, for threads. `AsyncLimiter` has the same for coroutines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.arguments import Item, check_keys, merge_items, timeout_ns
from penstock.decision import Decision
from penstock.decorators import Key, Slot, limit_calls
from penstock.errors import LimitError
from penstock.limit import Limit, as_limit
from penstock.reservation import Reservation
from penstock.steps import drive
from penstock.stores.base import Counters, Store, check_cost, check_key, speaking
from penstock.stores.memory import MemoryStore
from penstock.waiters import TaskWaiter, ThreadWaiter, WaiterQueues
from penstock.waiting import Flow, give_back, wait

if TYPE_CHECKING:
    from penstock import _no_cython as cython  # which has types
else:
    try:
        import cython  # needed to compile this, not to run it
    except ModuleNotFoundError:
        from penstock import _no_cython as cython

F = TypeVar("F", bound=Callable[..., Any])

# Limits that callers pass with a request are remembered, up to so many.
MOST_KNOWN = 1024


def _options(limit: Limit | str | None = None, store: Store | None = None) -> None:
    """Has the signature of `Limiter`: that of a compiled class cannot be seen."""


class Limiter:
    """Decides who may go ahead.

    ``Limiter("100/minute")`` keeps its state in this process; give it another
    ``store`` to share it. `hit` is the verb that most callers want. Every verb
    takes a ``limit`` of its own where one limiter serves several.
    """

    __signature__ = signature(_options)

    def __init__(self, limit: Limit | str | None = None, store: Store | None = None) -> None:
        if store is not None and not isinstance(store, Store):
            raise TypeError(f"store is a Store such as MemoryStore(), not {store!r}")
        self.store = MemoryStore() if store is None else store
        self.default = None if limit is None else self.store.counters(as_limit(limit))
        self.known: dict[Limit | str, Counters] = {}
        self.thread_waiters = WaiterQueues(ThreadWaiter)
        self.task_waiters = WaiterQueues(TaskWaiter)

    @cython.binding(False)  # 5 ns faster; its signature is in its docstring
    @cython.embedsignature(True)
    def hit(self, key: str, limit: Limit | str | None = None, cost: int = 1) -> Decision:
        """May ``key`` go ahead? Takes ``cost`` units if so. Most callers want this one."""
        counters = self.default
        if limit is not None or counters is None:
            counters = self.counters(limit)
        return counters.hit(key, cost)

    def peek(self, key: str, limit: Limit | str | None = None, cost: int = 1) -> Decision:
        """Whether `hit` would pass, and what remains now. Takes nothing, starts no lockout."""
        return self.counters(limit).peek(key, cost)

    def hit_many(
        self, keys: Iterable[str], limit: Limit | str | None = None, cost: int = 1
    ) -> list[Decision]:
        """Independent decisions at one moment, in one call."""
        return self.counters(limit).hit_many(check_keys(keys), cost)

    def hit_all(self, items: Iterable[Item]) -> Decision:
        """All of several limits pass, or nothing is taken from any.

        Each item is ``(key, limit)`` or ``(key, limit, cost)``. The decision is the
        one that refused (with the longest wait, if there are several), or the one
        with the least remaining.
        """
        return speaking(self.store.hit_each(merge_items(self.counters, items)))

    def wait(
        self,
        key: str,
        limit: Limit | str | None = None,
        cost: int = 1,
        timeout: float | None = None,
    ) -> Decision:
        """Block until ``key`` may go ahead, first come, first served.

        Refuses if that can never be, or not within ``timeout`` seconds, and does so at
        once if that is known at once. With a leaky bucket, each caller gets a place in
        the bucket, and is refused when it is full.
        """
        return drive(self.begin(self.thread_waiters, key, limit, cost, timeout))

    def refund(self, key: str, cost: int = 1, limit: Limit | str | None = None) -> None:
        """Give units back, never beyond full."""
        self.counters(limit).refund(key, cost)

    def reset(self, key: str, limit: Limit | str | None = None) -> None:
        """Forget the key: its next hit finds the limit untouched."""
        self.counters(limit).reset(key)

    def reserve(self, key: str, limit: Limit | str | None = None, cost: int = 1) -> Reservation:
        """Take ``cost`` now and settle for what was really used later."""
        return Reservation(self.store, self.counters(limit), key, cost)

    def slot(
        self,
        key: str,
        limit: Limit | str | None = None,
        cost: int = 1,
        timeout: float | None = None,
    ) -> Slot:
        """``with limiter.slot(key):`` waits for its turn, or raises `LimitExceeded`."""
        return Slot(lambda key: self.begin(self.thread_waiters, key, limit, cost, timeout), key)

    def limit(
        self,
        key: Key | None = None,
        limit: Limit | str | None = None,
        cost: int = 1,
        timeout: float | None = 0,
    ) -> Callable[[F], F]:
        """Limit the calls of a function, sync or async; a refused one raises `LimitExceeded`.

        ``key`` is a string, or a function that makes one from the call's arguments;
        by default all calls of the function share one. ``timeout`` lets a call
        wait for its turn: seconds, or None for as long as it takes. If a function has
        several limits, a call passes all of them or takes from none.
        """
        # A wrong argument is an error now, not in the first call.
        counters = self.counters(limit)
        check_cost(cost)
        timeout_ns(timeout)
        return limit_calls(
            key,
            lambda key: self.begin(self.thread_waiters, key, limit, cost, timeout),
            lambda key: self.begin(self.task_waiters, key, limit, cost, timeout),
            lambda key, decision: give_back(counters, key, cost, decision),
        )

    def begin(
        self,
        queues: WaiterQueues,
        key: str,
        limit: Limit | str | None,
        cost: int,
        timeout: float | None,
    ) -> Flow:
        """A wait in one of ``queues``, to be driven."""
        checked = check_key(key), check_cost(cost)
        return wait(queues, self.counters(limit), *checked, timeout_ns(timeout))

    def counters(self, limit: Limit | str | None) -> Counters:
        """The store's counters of ``limit``, or of the limiter's own."""
        if limit is None:
            if self.default is None:
                raise LimitError(
                    "no limit: make one with Limiter('100/minute') or name one in this call"
                )
            return self.default
        if not isinstance(limit, (Limit, str)):
            as_limit(limit)
        counters = self.known.get(limit)
        if counters is None:
            counters = self.store.counters(as_limit(limit))
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[limit] = counters
        return counters

    def __repr__(self) -> str:
        limit = "" if self.default is None else f"{str(self.default.limit)!r}, "
        return f"Limiter({limit}store={self.store!r})"
