# cython: binding=True
# Bound functions keep their signatures, for editors and for help().
"""Limiter: the verbs, for threads. `AsyncLimiter` has the same for coroutines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import signature
from random import random
from typing import TYPE_CHECKING, Any, Never, NoReturn, TypeVar, overload

from penstock.arguments import (
    ALL_KEYS,
    AllKeys,
    check_keys,
    check_name,
    merge_items,
    patience_ns,
    timeout_ns,
)
from penstock.arguments import Item as KeyAndLimit
from penstock.combined import CombinedCounters, counters_of, parts_of
from penstock.decision import Decision
from penstock.decorators import (
    Cost,
    Key,
    Slot,
    counters_for_calls,
    do_not_limit,
    is_function,
    limit_calls,
)
from penstock.durations import Duration, parse_duration
from penstock.errors import LimitError
from penstock.flow_steps import drive
from penstock.limits import Limit, not_a_limit
from penstock.misuse import (
    ALL,
    BLOCK,
    HIT,
    PEEK,
    SHARED,
    TURN,
    WEB,
    NotAVerb,
    wrong_arguments,
    wrong_option,
)
from penstock.partial_hits import PartialHit, charge, hit_up_to
from penstock.reservation import Reservation
from penstock.stores.base import Counters, Store, check_cost, check_key, speaking
from penstock.stores.disabled import DisabledStore
from penstock.stores.url import as_store
from penstock.streams import WAIT, check_items, check_on_refused, limited, stream_key
from penstock.switch import is_enabled
from penstock.waiters import TaskWaiter, ThreadWaiter, WaiterQueues
from penstock.waiting import Flow, give_back, give_back_all, wait, wait_for_all, wait_jittered

if TYPE_CHECKING:
    from penstock import _no_cython as cython  # which has types
else:
    try:
        import cython  # needed to compile this, not to run it
    except ModuleNotFoundError:
        from penstock import _no_cython as cython

F = TypeVar("F", bound=Callable[..., Any])
Item = TypeVar("Item")

# Limits that callers pass with a request are remembered, up to so many.
MOST_KNOWN = 1024


def _options(
    limit: Limit | str | None = None,
    store: Store | str | None = None,
    *,
    name: str | None = None,
    chance: Callable[[], float] | None = None,
    enabled: bool | None = None,
) -> None:
    """Has the signature of `Limiter`: that of a compiled class cannot be seen."""


class Limiter:
    """Decides who may go ahead.

    ``Limiter("100/minute")`` keeps its state in this process; give it another
    ``store`` to share it, or its URL. `hit` is the verb that most callers want. Every verb
    takes a ``limit`` of its own where one limiter serves several. A text may name
    several limits, ``"5/minute; 100/day"``: all of them pass, or nothing is taken.
    Limiters on one store share the counts of equal limits, unless they have
    different names. ``chance`` returns the random numbers from 0 to 1 of a jitter.
    With ``enabled=False``, or ``PENSTOCK_ENABLED=0`` in the environment, it allows
    everything and counts nothing.
    """

    __signature__ = signature(_options)
    # Verbs of other libraries. Not `__getattr__`, which would make every look-up slower.
    acquire = NotAVerb("acquire", TURN)
    try_acquire = NotAVerb("try_acquire", HIT)
    consume = NotAVerb("consume", HIT)
    test = NotAVerb("test", PEEK)
    check = NotAVerb("check", HIT)
    get_window_stats = NotAVerb("get_window_stats", PEEK)
    clear = NotAVerb("clear", ALL)
    shared_limit = NotAVerb("shared_limit", SHARED)
    exempt = NotAVerb("exempt", WEB)
    init_app = NotAVerb("init_app", WEB)
    __enter__ = NotAVerb("__enter__", BLOCK)

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
        wrong = wrong_arguments("Limiter", limit, store, more, unknown)
        if wrong is not None:
            raise wrong
        self.store = as_store(store)
        if not is_enabled(enabled):
            self.store = DisabledStore(self.store)
        self.chance = random if chance is None else chance
        self.name = check_name(name)
        self.default = None if limit is None else counters_of(self.store, limit, name)
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

    def peek(
        self, key: str, limit: Limit | str | None = None, cost: int = 1, *, whole: bool = False
    ) -> Decision:
        """Whether `hit` would pass, and what remains now. Takes nothing, starts no lockout.

        A `LeasedStore` speaks of what this process knows. With ``whole``, it asks the server,
        where units that any process has leased are taken already.
        """
        counters = self.counters(limit)
        return (counters.whole() if whole else counters).peek(key, cost)

    def hit_many(
        self, keys: Iterable[str], limit: Limit | str | None = None, cost: int = 1
    ) -> list[Decision]:
        """Independent decisions at one moment, in one call."""
        return self.counters(limit).hit_many(check_keys(keys), cost)

    def hit_all(self, items: Iterable[KeyAndLimit]) -> Decision:
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
        timeout: Duration | None = None,
        jitter: Duration | None = None,
    ) -> Decision:
        """Block until ``key`` may go ahead, first come, first served.

        Refuses if that can never be, or not within ``timeout`` seconds, and does so at
        once if that is known at once. With a leaky bucket, each caller gets a place in
        the bucket, and is refused when it is full. ``jitter`` is the longest of the
        random pauses that follow the turn.
        """
        return drive(self.begin(self.thread_waiters, key, limit, cost, timeout, jitter))

    def charge(self, key: str, cost: int = 1, limit: Limit | str | None = None) -> Decision:
        """Take ``cost`` whether it fits or not, for what was used already.

        The decision says what is left, and whether one more unit would pass.
        """
        checked = check_key(key), check_cost(cost)
        return drive(charge(self.counters(limit), *checked))

    def hit_up_to(self, key: str, most: int, limit: Limit | str | None = None) -> PartialHit:
        """Take as much as there is, at most ``most`` units; ``.taken`` says how much.

        It never takes more than the limit allows. A refusal starts no lockout.
        """
        checked = check_key(key), check_cost(most)
        return drive(hit_up_to(self.store, self.counters(limit), *checked))

    def limited(
        self,
        items: Iterable[Item],
        *,
        key: str | None = None,
        limit: Limit | str | None = None,
        cost: int = 1,
        timeout: Duration | None = None,
        on_refused: str = "wait",
    ) -> Iterator[Item]:
        """The items, each of which passes the limit first: ``for row in limiter.limited(rows,
        key="export")``.

        Without a key, these items have a count of their own.
        ``on_refused``: ``"wait"`` for each item's turn, at most ``timeout``, and raise
        `LimitExceeded` then; ``"drop"`` items that are refused; or ``"raise"`` at once.
        """
        most = timeout if check_on_refused(on_refused) == WAIT else 0
        counters, name, units = self.counters(limit), stream_key(key), check_cost(cost)
        patience = timeout_ns(most)
        check_items(items)

        def decide() -> Decision:
            return drive(wait(self.thread_waiters, counters, name, units, patience))

        return limited(items, name, decide, on_refused)

    def refund(self, key: str, cost: int = 1, limit: Limit | str | None = None) -> None:
        """Give units back, never beyond full."""
        self.counters(limit).refund(key, cost)

    def reset(self, key: str | AllKeys = ALL_KEYS, limit: Limit | str | None = None) -> None:
        """Forget the key: its next hit finds the limit untouched. Without a key, forget all.

        All keys of a limit are known to a memory store, and slowly found in Redis. For a
        shared file there is ``store.clear()``.
        """
        counters = self.counters(limit)
        if isinstance(key, AllKeys):
            counters.clear()
        else:
            counters.reset(key)

    def reserve(
        self,
        key: str,
        limit: Limit | str | None = None,
        cost: int = 1,
        max_delay: Duration | None = None,
    ) -> Reservation:
        """Take ``cost`` now, and settle what was really used later.

        With ``max_delay``, a bucket that has too little now reserves for later: ``.delay`` says
        in how many seconds, at most ``max_delay``, the turn comes. Act then, or `cancel`.
        """
        counters, patience = self.counters(limit), patience_ns(max_delay)
        return Reservation(self.store, counters, key, cost, patience)

    def slot(
        self,
        key: str,
        limit: Limit | str | None = None,
        cost: int = 1,
        timeout: Duration | None = None,
    ) -> Slot:
        """``with limiter.slot(key):`` waits for its turn, or raises `LimitExceeded`."""
        return Slot(lambda key: self.begin(self.thread_waiters, key, limit, cost, timeout), key)

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
        """Limit the calls of a function, sync or async; a refused one raises `LimitExceeded`.

        ``@limiter.limit`` and ``@limiter.limit("2/minute")``. ``key`` is a string, or a
        function that makes one from the call's arguments; by default all calls of the
        function share one. ``cost`` is a number, or a function of the same arguments; a call
        that costs 0 is not limited. ``timeout`` lets a call wait for its turn: seconds, or
        None for as long as it takes. With ``enabled=False``, nothing is limited. A generator
        is limited once, when it is called; an async generator when it is asked for its first
        item. If a function has several limits, a call passes all of them or takes from none.
        """
        # A wrong argument is an error now, not in the first call.
        if unknown:
            raise wrong_option("@limiter.limit", *unknown.popitem())
        if is_function(limit):
            return self.limit(key=key, cost=cost, timeout=timeout, enabled=enabled)(limit)
        counters = counters_for_calls(self.counters, limit)
        most = timeout_ns(timeout)
        if not is_enabled(enabled):
            return do_not_limit(key, cost)
        threads, tasks = self.thread_waiters, self.task_waiters
        if isinstance(counters, CombinedCounters):
            return limit_calls(
                key,
                cost,
                lambda key, cost: wait_for_all(threads, counters, check_key(key), cost, most),
                lambda key, cost: wait_for_all(tasks, counters, check_key(key), cost, most),
                lambda key, cost, decisions: give_back_all(counters, key, cost, decisions),
            )
        return limit_calls(
            key,
            cost,
            lambda key, cost: wait(threads, counters, check_key(key), cost, most),
            lambda key, cost: wait(tasks, counters, check_key(key), cost, most),
            lambda key, cost, decision: give_back(counters, key, cost, decision),
        )

    def begin(
        self,
        queues: WaiterQueues,
        key: str,
        limit: Limit | str | None,
        cost: int,
        timeout: Duration | None,
        jitter: Duration | None = None,
    ) -> Flow:
        """A wait in one of ``queues``, to be driven."""
        checked = self.counters(limit), check_key(key), check_cost(cost), timeout_ns(timeout)
        if jitter is None:
            return wait(queues, *checked)
        longest = parse_duration(jitter, "jitter")
        return wait_jittered(queues, *checked, lambda: int(self.chance() * longest))

    def counters(self, limit: Limit | str | None) -> Counters:
        """The store's counters of ``limit``, or of the limiter's own."""
        if limit is None:
            if self.default is None:
                raise LimitError(
                    "no limit: make one with Limiter('100/minute') or name one in this call"
                )
            return self.default
        if not isinstance(limit, (Limit, str)):
            raise LimitError(f"{not_a_limit(limit)}; a cost is given by name, cost=")
        counters = self.known.get(limit)
        if counters is None:
            counters = counters_of(self.store, limit, self.name)
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[limit] = counters
        return counters

    def __copy__(self) -> Limiter:
        return self  # its state is in the store

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a limiter cannot be pickled, as its state is in its store: pass the limit, and make"
            " a limiter in each process; a SharedMemoryStore or a RedisStore is shared by them"
        )

    def __repr__(self) -> str:
        parts = () if self.default is None else parts_of(self.default)
        limit = f"{'; '.join([str(part.limit) for part in parts])!r}, " if parts else ""
        name = "" if self.name is None else f", name={self.name!r}"
        return f"Limiter({limit}store={self.store!r}{name})"
