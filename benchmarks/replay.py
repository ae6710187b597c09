"""Virtual time for every library: an hour of traffic is decided in a moment.

Penstock is given a clock. The peers read the system's, so that is patched where
they look it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from unittest import mock

from benchmarks.contenders import Contender
from benchmarks.loops import REPLAY, compiled
from benchmarks.settings import Names, Setup
from benchmarks.traffic import START
from penstock.testing import FakeClock

PATCHED = (
    "virtual time: Penstock has FakeClock; patched are limits.storage.memory.time (its timer"
    " threads held still), throttled.utils.time, pyrate_limiter.clocks.monotonic_ns and, for"
    " aiolimiter, the event loop's time()"
)


def replay(contender: Contender, amount: int, per: str, times: Sequence[int]) -> list[int]:
    """Which of the hits at ``times`` the contender admits."""
    clock = FakeClock(START)

    def seconds() -> float:
        return clock.now() / 1e9

    with ExitStack() as patches:
        if contender.library == "limits":
            module = SimpleNamespace(time=seconds)
            patches.enter_context(mock.patch("limits.storage.memory.time", module))
        elif contender.library == "throttled-py":
            module = SimpleNamespace(time=seconds, monotonic=seconds)
            patches.enter_context(mock.patch("throttled.utils.time", module))
        elif contender.library == "pyrate-limiter":
            patches.enter_context(mock.patch("pyrate_limiter.clocks.monotonic_ns", clock.now))
        events = asyncio.new_event_loop()
        patches.callback(events.close)
        events.time = seconds  # type: ignore[method-assign]  # it runs on virtual time, too
        names = contender.make(Setup(amount, per, clock=clock))
        hold_still(contender, names)
        loop = compiled(REPLAY, contender, contender.decides(), names, events)
        admitted: list[int] = loop(times, clock.set, "user:42")
        if contender.library == "pyrate-limiter":
            names["limiter"].close()
    return admitted


def hold_still(contender: Contender, names: Names) -> None:
    """The timer of limits runs in real time, and only frees what has expired anyway."""
    if contender.library == "limits":
        storage = names["limiter"].storage
        storage.timer.cancel()
        storage.timer = SimpleNamespace(is_alive=lambda: True)
