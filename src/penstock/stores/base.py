"""What a store is: a maker of counters, and the owner of atomicity and time.

A store gives out one `Counters` for each limit; that is where keys are decided
on. A third-party store subclasses both. `penstock.testing.StoreConformance` is
the suite that it must pass.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Iterable
from typing import Any

from penstock.algorithms import build
from penstock.algorithms.base import Algorithm
from penstock.algorithms.words import NO_MARK
from penstock.clock import MONOTONIC, WALL, Clock
from penstock.decision import Decision
from penstock.errors import InvalidCost, InvalidKey
from penstock.limit import Limit

# The patience of an attempt to which any delay will do.
ENDLESS = -1
# Above every possible burst: a larger cost is answered like this one.
MOST_COST = 2**62


class Counters:
    """The counters of one limit in one store: key in, decision out.

    Each method is atomic for its key, in every thread and process that shares
    the store.
    """

    def __init__(self, limit: Limit, clock: Clock | None) -> None:
        self.limit = limit
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

    def attempt(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        """`hit`, but a refusal is no violation: it starts no lockout and is not remembered.

        For those who wait for their turn and for those who may try again. What would have
        to wait for longer than ``patience`` nanoseconds for its place on a paced line is
        refused as well, and takes none.
        """
        raise NotImplementedError

    def charge(self, key: str, cost: int) -> None:
        """Take ``cost`` whether it fits or not."""
        raise NotImplementedError

    def refund(self, key: str, cost: int, mark: int = NO_MARK, kept: int = 0) -> None:
        """Give ``cost`` back; see `Algorithm.refund` for ``mark`` and ``kept``."""
        raise NotImplementedError

    def reset(self, key: str) -> None:
        """Forget the key."""
        raise NotImplementedError

    def hit_many(self, keys: Iterable[str], cost: int) -> list[Decision]:
        """Independent decisions in the order of ``keys``; none is made if one is no key."""
        names = [check_key(key) for key in keys]
        return [self.hit(key, cost) for key in names]

    def submit(self, verb: str, *args: Any) -> Awaitable[Any]:
        """Any of the above from a coroutine. A store that has to wait overrides it.

        Who is cancelled while awaiting a hit or an attempt has taken nothing in the end. What
        charges, gives back or resets happens in any case.
        """
        return _as_awaitable(getattr(self, verb)(*args))


async def _as_awaitable(answer: Any) -> Any:
    return answer


class Store:
    """Where state lives. A store of your own makes counters, and decides on several at once.

    ``on_failure`` is its failure policy, for those who must decide when it raises a
    `StoreError`. ``waits`` says that its answers come from elsewhere: then coroutines get theirs by
    `Counters.submit` and `hit_each_async`.
    """

    waits = False
    # What it decides by while it cannot be asked, if it decides then.
    on_failure: str | None = None

    def __init__(self) -> None:
        self._counters: dict[Limit, Counters] = {}
        self._making = threading.Lock()

    def counters(self, limit: Limit) -> Counters:
        """The counters of ``limit``: the same object for an equal limit."""
        found = self._counters.get(limit)
        if found is None:
            with self._making:
                found = self._counters.get(limit)
                if found is None:
                    found = self._counters[limit] = self.make_counters(limit)
        return found

    def release(self, limit: Limit) -> bool:
        """Let go of the counters of a limit that nobody asks by any more.

        False if they stay, because keys that still matter would be lost with them. A store
        whose state lies elsewhere lets go of them at any time: see `forget`.
        """
        return False

    def forget(self, limit: Limit) -> bool:
        """`release` for a store whose state does not lie in its counters."""
        with self._making:
            self._counters.pop(limit, None)
        return True

    def make_counters(self, limit: Limit) -> Counters:
        """New counters for a limit that this store sees for the first time."""
        raise NotImplementedError

    def hit_each(
        self, wanted: list[tuple[Counters, str, int]], attempt: bool = False
    ) -> list[Decision]:
        """All pass, or none is taken; a decision for each of them.

        ``wanted`` names no key of the same limit twice. When one refuses, the decisions
        of those that would have passed say what `Counters.peek` would. With ``attempt``
        a refusal is no violation: see `Counters.attempt`.
        """
        raise NotImplementedError

    def hit_each_async(
        self, wanted: list[tuple[Counters, str, int]], attempt: bool = False
    ) -> Awaitable[list[Decision]]:
        """`hit_each` from a coroutine. A store that has to wait overrides it."""
        return _as_awaitable(self.hit_each(wanted, attempt))

    def close(self) -> None:
        """Let go of files and connections. Stores without any have nothing to do."""


def check_key(key: object) -> str:
    """``key`` as an exact ``str``, or an error that says what it is instead."""
    if type(key) is str and key:
        return key
    if isinstance(key, str):
        if key:
            return str.__str__(key)  # of a subclass: its own hash and eq must not matter
        raise InvalidKey("a key is a non-empty str, this one is empty")
    raise InvalidKey(f"a key is a non-empty str, not {type(key).__name__}: {key!r:.100}")


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
    """The one of several that speaks for the request: see `pick`."""
    best: Decision | None = None
    for decision in decisions:
        best = pick(best, decision)
    assert best is not None, "nothing was decided on"
    return best


def pick(best: Decision | None, decision: Decision) -> Decision:
    """Of two decisions about one request, the one that speaks for it.

    The one that refused, with the longest wait if both did; else the one with the
    least remaining.
    """
    if best is None or (best.allowed and not decision.allowed):
        return decision
    if decision.allowed:
        return decision if best.allowed and decision.remaining < best.remaining else best
    if best._retry < 0:
        return best
    return decision if decision._retry < 0 or decision._retry > best._retry else best
