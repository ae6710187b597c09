# cython: binding=True
# Bound functions keep their signatures, for editors and for help().
"""Limiter: the verbs, for threads. `AsyncLimiter` has the same for coroutines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.decision import Decision
from penstock.drivers import drive
from penstock.errors import LimitError
from penstock.flow import Flow, give_back, wait
from penstock.guard import Key, Slot, guarding
from penstock.limit import Limit, as_limit
from penstock.line import Line, TaskTicket, ThreadTicket
from penstock.request import Wanted, merge, several, timeout_ns
from penstock.reservation import Reservation
from penstock.stores.base import Counters, Store, check_cost, check_key, speaking
from penstock.stores.memory import MemoryStore

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
        self.threads = Line(ThreadTicket)
        self.tasks = Line(TaskTicket)

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
        return self.counters(limit).hit_many(several(keys), cost)

    def hit_all(self, wanted: Iterable[Wanted]) -> Decision:
        """All of several limits pass, or nothing is taken from any.

        Each item is ``(key, limit)`` or ``(key, limit, cost)``. The decision is the
        one that refused (with the longest wait, if there are several), or the one
        with the least remaining.
        """
        return speaking(self.store.hit_each(merge(self.counters, wanted)))

    def wait(
        self,
        key: str,
        limit: Limit | str | None = None,
        cost: int = 1,
        timeout: float | None = None,
    ) -> Decision:
        """Block until ``key`` may go ahead, first come, first served.

        Answers refused when it can never be, or not within ``timeout`` seconds:
        at once where that is known at once. With a leaky bucket, each caller
        gets a place on an evenly paced line, and is refused when that is full.
        """
        return drive(self.begin(self.threads, key, limit, cost, timeout))

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
        return Slot(lambda key: self.begin(self.threads, key, limit, cost, timeout), key)

    def limit(
        self,
        key: Key | None = None,
        limit: Limit | str | None = None,
        cost: int = 1,
        timeout: float | None = 0,
    ) -> Callable[[F], F]:
        """Guard a function, sync or async: a call that is refused raises `LimitExceeded`.

        ``key`` is a string, or a function that makes one of the call's arguments;
        by default all calls of the function share one. ``timeout`` lets a call
        wait for its turn: seconds, or None for as long as it takes. Of several guards
        on one function all let a call pass, or none takes anything.
        """
        # What is wrong is an error here, not in the first call.
        counters = self.counters(limit)
        check_cost(cost)
        timeout_ns(timeout)
        return guarding(
            key,
            lambda key: self.begin(self.threads, key, limit, cost, timeout),
            lambda key: self.begin(self.tasks, key, limit, cost, timeout),
            lambda key, decision: give_back(counters, key, cost, decision),
        )

    def begin(
        self, line: Line, key: str, limit: Limit | str | None, cost: int, timeout: float | None
    ) -> Flow:
        """A wait in ``line``, to be driven."""
        checked = check_key(key), check_cost(cost)
        return wait(line, self.counters(limit), *checked, timeout_ns(timeout))

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
