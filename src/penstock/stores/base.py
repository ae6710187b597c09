# cython: embedsignature=True, embedsignature.format=python
"""Store and Counters: the interface of all stores, which provide atomicity and time.

A store has one `Counters` per limit, which decides on keys. A third-party store subclasses both,
and must pass `penstock.testing.StoreConformance`.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

from penstock.algorithms import build
from penstock.algorithms.base import Algorithm
from penstock.algorithms.words import NO_MARK
from penstock.clock import MONOTONIC, WALL, Clock
from penstock.decision import Decision
from penstock.errors import InvalidCost, InvalidKey, StoreError, UnsupportedLimit
from penstock.limits import Limit

# The patience of an attempt that accepts any delay.
ENDLESS = -1
# Above every possible burst: a larger cost is answered like this one.
MOST_COST = 2**62


class Counters:
    """The counters of one limit in one store: key in, decision out.

    Each method is atomic for its key, in every thread and process that shares
    the store. Counters with a ``name`` count apart from others of the same limit.
    """

    def __init__(self, limit: Limit, clock: Clock | None) -> None:
        self.limit = limit
        self.name: str | None = None  # set by `Store.counters`
        self.algorithm: Algorithm = build(limit)
        if clock is None:
            clock = WALL if self.algorithm.wall else MONOTONIC
        self.clock = clock

    def now(self) -> int:
        """The store's time, in nanoseconds."""
        return self.clock.now()

    def hit(self, key: str, cost: int) -> Decision:
        """Decide, and take ``cost`` if it fits."""
        raise NotImplementedError

    def peek(self, key: str, cost: int) -> Decision:
        """Whether `hit` would pass, with ``remaining`` as it is now. Changes nothing."""
        raise NotImplementedError

    def whole(self) -> Counters:
        """The counters that all who share the store have in common; most are that themselves.

        `LeasedStore` has others beside them, which speak of what this process holds.
        """
        return self

    def attempt(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        """`hit`, but a refusal is no violation: it starts no lockout and is not remembered.

        For callers that wait for their turn or may try again. An attempt on a leaky bucket that
        would have to wait longer than ``patience`` nanoseconds is refused as well.
        """
        raise NotImplementedError

    def charge(self, key: str, cost: int) -> None:
        """Take ``cost`` whether it fits or not."""
        raise NotImplementedError

    def refund(self, key: str, cost: int, mark: int = NO_MARK, kept: int = 0) -> None:
        """Give ``cost`` back; see `Algorithm.refund` for ``mark`` and ``kept``."""
        raise NotImplementedError

    def reserve(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        """Take ``cost`` for the first moment at which it fits: the decision's ``delay``.

        Refused if that is more than ``patience`` nanoseconds away. Of a bucket only.
        """
        raise StoreError("this store cannot reserve for later")

    def cancel(self, key: str, cost: int, mark: int, kept: int = 0) -> None:
        """Give back what was reserved for later, as far as nobody relies on it."""
        raise StoreError("this store cannot reserve for later")

    def reset(self, key: str) -> None:
        """Forget the key."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget every key of this limit, where the store knows them."""
        raise StoreError(
            "this store cannot forget all keys of one limit: store.clear() forgets those of all"
        )

    def hit_many(self, keys: Iterable[str], cost: int) -> list[Decision]:
        """Independent decisions in the order of ``keys``; all keys are checked first."""
        names = [check_key(key) for key in keys]
        return [self.hit(key, cost) for key in names]

    def submit(self, verb: str, *args: Any) -> Awaitable[Any]:
        """Any of the above from a coroutine. A store that has to wait overrides it.

        A hit, an attempt or a reservation that is cancelled takes nothing. A charge, a refund
        or a reset happens in any case.
        """
        return _as_awaitable(getattr(self, verb)(*args))


async def _as_awaitable(answer: Any) -> Any:
    return answer


class Store:
    """Where state lives. A subclass creates counters, and decides on several keys at once.

    ``waits`` says that answers come from elsewhere: coroutines then use `Counters.submit` and
    `hit_each_async`. ``on_failure`` is the store's failure policy, if it has one. ``can_lease``
    says that it may decide from leases: see `LeasedStore`.
    """

    waits = False
    on_failure: str | None = None
    can_lease = False

    def __init__(self) -> None:
        self._counters: dict[object, Counters] = {}  # by limit, and by name if there is one
        self._making = threading.Lock()

    def counters(self, limit: Limit, name: str | None = None) -> Counters:
        """The counters of ``limit``: the same object for an equal limit and an equal name."""
        label: object = limit if name is None else (limit, name)
        counters = self._counters.get(label)
        if counters is None:
            with self._making:
                counters = self._counters.get(label)
                if counters is None:
                    if name is None:
                        counters = self.make_counters(limit)
                    else:
                        counters = self.make_counters(limit, name)
                        counters.name = name
                    self._counters[label] = counters
        return counters

    def counters_with(self, limit: Limit, lease: bool | int | None) -> Counters:
        """`counters`, with a choice of whether they are leased.

        False is never, and a number is a horizon of their own, in nanoseconds. True and None
        leave it to the store. A store that cannot lease has only one kind.
        """
        return self.counters(limit)

    def meter_counters(
        self, meter: str, plan: str | None = None, on_failure: str = "closed"
    ) -> Counters:
        """The counters of a quota, by account: see `penstock.quota.QuotaStore`, which has them."""
        raise UnsupportedLimit(
            f"the quota of {meter!r} needs a ledger: Gate(..., ledger=Ledger('sqlite:///quota.db')),"
            " or penstock serve --ledger"
        )

    def define_plans(self, plans: Mapping[str, Any]) -> None:
        """The plans of rules that come into force. Only a store with quotas needs them."""

    def release(self, limit: Limit) -> bool:
        """Drop the counters of a limit that is no longer used.

        False if they stay, because live keys would be lost with them.
        """
        return False

    def forget(self, limit: Limit) -> bool:
        """`release` for a store whose state is not in its counters."""
        with self._making:
            self._counters.pop(limit, None)
        return True

    def make_counters(self, limit: Limit, name: str | None = None) -> Counters:
        """New counters for a limit, and a name, that this store sees for the first time."""
        raise NotImplementedError

    def hit_each(
        self, wanted: list[tuple[Counters, str, int]], attempt: bool = False
    ) -> list[Decision]:
        """Take from all keys, or from none; returns a decision for each.

        ``wanted`` names no key of the same limit twice. When one refuses, the decisions on
        the others are those of `Counters.peek`. With ``attempt``, a refusal is no violation:
        see `Counters.attempt`.
        """
        raise NotImplementedError

    def hit_each_async(
        self, wanted: list[tuple[Counters, str, int]], attempt: bool = False
    ) -> Awaitable[list[Decision]]:
        """`hit_each` from a coroutine. A store that has to wait overrides it."""
        return _as_awaitable(self.hit_each(wanted, attempt))

    def hit_groups(self, wanted: list[list[tuple[Counters, str, int]]]) -> list[list[Decision]]:
        """`hit_each` of several groups, independent of each other.

        A store that has to wait overrides it, to send them together.
        """
        return [self.hit_each(group) for group in wanted]

    def call_each(self, verb: str, calls: list[tuple[Counters, tuple[Any, ...]]]) -> list[Any]:
        """The same verb of several counters, each with its arguments.

        A store that has to wait overrides it, to send them together.
        """
        return [getattr(counters, verb)(*args) for counters, args in calls]

    def clear(self) -> None:
        """Forget every key of every limit, as between tests."""
        raise StoreError(f"{self!r} cannot forget all its keys")

    def close(self) -> None:
        """Close files and connections, if there are any; the store cannot be used any more."""


def check_key(key: object) -> str:
    """``key`` as an exact ``str``, or an error that says what it is instead."""
    if type(key) is str and key:
        return key
    if isinstance(key, str):
        if key:
            return str.__str__(key)  # a subclass may have another hash and eq
        raise InvalidKey("a key is a non-empty str, this one is empty")
    hint = f"; write {str(key)!r:.50}" if type(key) is int else ""
    raise InvalidKey(f"a key is a non-empty str, not {type(key).__name__}: {key!r:.100}{hint}")


def check_clock(clock: Clock | None) -> Clock | None:
    """``clock`` if it is one, or an error that says what it lacks."""
    if clock is None:
        return None
    if not isinstance(clock, Clock):
        raise TypeError(f"a clock has now(), sleep() and sleep_async(); {clock!r} has not")
    now = clock.now()
    if type(now) is not int or now < 0:
        raise TypeError(f"a clock's now() is a whole number of nanoseconds, not {now!r}")
    return clock


def check_cost(cost: object) -> int:
    """``cost`` as a whole number of at least 1, or an error."""
    if type(cost) is not int:
        raise InvalidCost(f"cost is a whole number of at least 1, not {cost!r:.100}")
    if cost < 1:
        raise InvalidCost(f"cost is at least 1, not {cost}; peek looks without taking anything")
    return cost if cost < MOST_COST else MOST_COST


def speaking(decisions: Iterable[Decision]) -> Decision:
    """The decision that stands for a request with several: see `pick`."""
    best: Decision | None = None
    for decision in decisions:
        best = pick(best, decision)
    assert best is not None, "nothing was decided on"
    return best


def pick(best: Decision | None, decision: Decision) -> Decision:
    """Of two decisions about one request, the one that stands for it.

    A refusal comes first, the one with the longest wait if both refused; then the decision
    with the least remaining.
    """
    if best is None or (best.allowed and not decision.allowed):
        return decision
    if decision.allowed:
        return decision if best.allowed and decision.remaining < best.remaining else best
    if best._retry < 0:
        return best
    return decision if decision._retry < 0 or decision._retry > best._retry else best
