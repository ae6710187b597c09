"""Traffic to be decided on, and the exact answer to it. Times are whole nanoseconds."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

SECOND = 1_000_000_000
START = 1_704_067_200 * SECOND  # an edge of a minute, an hour and a day
OVERLOAD = 1.5


def poisson(amount: int, period: int, hits: int, seed: int = 1) -> list[int]:
    """Independent hits, on average one and a half times what the limit allows."""
    chance = random.Random(seed)
    now, times = float(START), []
    for _ in range(hits):
        now += chance.expovariate(OVERLOAD * amount / period)
        times.append(int(now))
    return times


def bursty(amount: int, period: int, hits: int, seed: int = 1) -> list[int]:
    """The same on average, but on for a sixth of a period and off for five sixths."""
    chance = random.Random(seed)
    now = until = float(START)
    times: list[int] = []
    while len(times) < hits:
        now += chance.expovariate(6 * OVERLOAD * amount / period)
        if now > until:
            now = until + chance.expovariate(6 / 5 / period)
            until = now + chance.expovariate(6 / period)
        times.append(int(now))
    return times


def edges(amount: int, period: int, hits: int) -> list[int]:
    """All that is allowed just before a window's edge and again just after it.

    A single hit comes a period before the edge: it opens the windows of those
    whose windows begin with a key's first hit.
    """
    step = period // 60 // amount
    times: list[int] = []
    edge = START + period
    while len(times) < hits:
        times.append(edge - period)
        times += range(edge - amount * step, edge + amount * step, step)
        edge += 3 * period
    return times


def exact_log(times: Sequence[int], amount: int, period: int) -> list[int]:
    """Which of the hits a log admits that forgets nothing too early or too late."""
    log: deque[int] = deque()
    admitted = []
    for now in times:
        while log and log[0] + period <= now:
            log.popleft()
        if len(log) < amount:
            log.append(now)
            admitted.append(now)
    return admitted


def worst_window(admitted: Sequence[int], period: int) -> int:
    """The most that any interval of one period saw."""
    first = most = 0
    for at, now in enumerate(admitted):
        while admitted[first] + period <= now:
            first += 1
        most = max(most, at - first + 1)
    return most


def above_envelope(admitted: Sequence[int], amount: int, period: int) -> float:
    """Units above burst + rate * t in the worst of all intervals, the burst being ``amount``."""
    level, last, most = 0.0, START, 0.0
    for now in admitted:
        level = max(0.0, level - (now - last) * amount / period) + 1
        most, last = max(most, level), now
    return max(0.0, most - amount)
