"""The loops that calls are measured in: compiled from text, the same for everybody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from benchmarks.contenders import Contender
from benchmarks.settings import Names

# All of a call at once: the clock is read twice for a whole list of keys.
TOTAL = """
{define} loop(keys, {names}):
    start = clock()
    for key in keys:
        {call}
    return clock() - start
"""

# Each call alone: what it took is put down between two calls.
EACH = """
{define} loop(keys, took, {names}):
    for at, key in enumerate(keys):
        start = clock()
        {call}
        took[at] = clock() - start
"""

# How many were admitted.
COUNT = """
{define} loop(keys, {names}):
    admitted = 0
    for key in keys:
        if {call}:
            admitted += 1
    return admitted
"""

# When they were admitted, in virtual time.
REPLAY = """
{define} loop(times, set_time, key, {names}):
    admitted = []
    for now in times:
        set_time(now)
        if {call}:
            {take}
            admitted.append(now)
    return admitted
"""


def compiled(
    template: str,
    contender: Contender,
    call: str,
    names: Names,
    events: asyncio.AbstractEventLoop | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Callable[..., Any]:
    """The loop as a plain function, also for a contender that must be awaited."""
    names_of = ", ".join(names)
    define = "async def" if contender.is_async else "def"
    source = template.format(define=define, names=names_of, call=call, take=contender.take)
    found: dict[str, Any] = {"clock": clock}
    exec(source, found)
    loop = found["loop"]
    if not contender.is_async:
        return lambda *args: loop(*args, **names)
    # One event loop for all rounds: a limiter may be bound to the first it sees.
    events = events or asyncio.new_event_loop()
    return lambda *args: events.run_until_complete(loop(*args, **names))
