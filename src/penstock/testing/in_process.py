"""The limits of a whole process in tests: their time, whether they refuse, and a fresh start.

An application often makes its limiters and middleware when it is imported, where a test cannot
pass them a clock or a store. These functions change the counters inside of every `MemoryStore`
instead, of those that exist and of those that are made later. Limiters and gates notice nothing,
and pay nothing for it when they decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock import switch
from penstock.algorithms import build
from penstock.breaker import BREAKERS
from penstock.clock import MONOTONIC, WALL, Clock
from penstock.limits import Limit
from penstock.stores import memory
from penstock.stores.base import check_clock

if TYPE_CHECKING:
    from penstock.stores._dict import DictCounters as MemoryCounters
    from penstock.stores.memory import MemoryStore

# More than any test takes. As a token bucket it has the shortest row, which fits in every table.
_UNLIMITED = Limit(10**9, "second", burst=10**12)

# The blocks that are running, innermost last.
_clocks: list[Clock] = []
_allowing = 0


@contextmanager
def use_clock(clock: Clock) -> Iterator[None]:
    """Inside the block, all memory stores that were given no clock use this one.

    Their counts are forgotten at the beginning and at the end: they belong to another time.
    """
    if check_clock(clock) is None:
        raise TypeError("use_clock needs a clock, such as FakeClock()")
    _clocks.append(clock)
    _apply()
    try:
        yield
    finally:
        _clocks.remove(clock)
        _apply()


@contextmanager
def allow_all() -> Iterator[None]:
    """Inside the block, no limit of this process refuses anything, in any thread.

    Middleware, decorators of views, dependencies and interceptors are switched off, and limiters
    and gates with a memory store allow everything. The counts of memory stores are forgotten at
    the beginning and at the end.
    """
    global _allowing
    with switch.limits_off():
        _allowing += 1
        _apply()
        try:
            yield
        finally:
            _allowing -= 1
            _apply()


def forget_counts() -> None:
    """Clear all memory stores, and close all circuit breakers."""
    for store in list(memory.STORES):
        store.clear()
    for breaker in list(BREAKERS):
        breaker.close()


def _apply() -> None:
    """Bring all counters in line with the blocks that are running."""
    memory.on_new_counters = _restart if _clocks or _allowing else None
    for store in list(memory.STORES):
        for counters in store.all_counters():
            _restart(store, counters)


def _restart(store: MemoryStore, counters: MemoryCounters) -> None:
    algorithm = build(counters.limit)
    clock = store.clock
    if clock is None:
        clock = _clocks[-1] if _clocks else WALL if algorithm.wall else MONOTONIC
    counters.restart(clock, build(_UNLIMITED) if _allowing else algorithm)
