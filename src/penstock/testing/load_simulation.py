"""A simulated service in virtual time, to try an adaptive strategy.

The service has some servers and one queue. A run waits for a server, then takes a random
time (lognormal: never negative, with a tail). The number of servers and the mean time of a run
may change over time. Requests arrive at random at a given mean rate, whether or not earlier ones
were served, as they do on the internet; an `Admission` admits or sheds them.

::

    true capacity  = servers / mean time of a run            runs a second
    response time  = waiting for a server + the run itself

The simulation runs event by event and depends only on the arguments and the seed.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.adaptive.base import AdaptiveLimit
from penstock.clock import SECOND

# A quantity over time: [(0, 20), (30, 10)] is 20, and 10 after thirty seconds.
Course = Sequence[tuple[float, float]]


class Admission(Protocol):
    """Decides which requests are admitted, and learns when each of them ends."""

    @property
    def limit(self) -> float:
        """The current limit, for the rows of the result."""

    def enter(self, number: int, now: int) -> bool:
        """Whether the request with this number may run."""

    def leave(self, number: int, duration_ns: int, now: int) -> None:
        """Called when the request has ended."""


class LimitedAdmission:
    """Admits requests up to the strategy's limit, and sheds the others."""

    def __init__(self, strategy: AdaptiveLimit) -> None:
        self._strategy = strategy
        self._running = 0
        self._running_at_entry: dict[int, int] = {}

    @property
    def limit(self) -> float:
        return self._strategy.limit

    def enter(self, number: int, now: int) -> bool:
        if self._running >= self._strategy.limit:
            return False
        self._running += 1
        self._running_at_entry[number] = self._running
        return True

    def leave(self, number: int, duration_ns: int, now: int) -> None:
        self._running -= 1
        self._strategy.record(duration_ns, self._running_at_entry.pop(number), False, now)


class Unlimited:
    """Admits every request: what happens without a limit."""

    limit = math.inf

    def enter(self, number: int, now: int) -> bool:
        return True

    def leave(self, number: int, duration_ns: int, now: int) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Second:
    """What happened in one second of virtual time, which began at ``at``."""

    at: int
    capacity: float
    limit: float
    offered: int
    shed: int
    finished: int
    p50: float
    p99: float


@dataclass(slots=True)
class SimulatedService:
    """``servers`` and ``run_time`` (the mean, in seconds) may change with time."""

    servers: Course = ((0, 20),)
    run_time: Course = ((0, 0.05),)
    spread: float = 0.35
    now: int = 0
    busy: int = 0
    # Requests that wait for a server: their numbers, and when they were admitted.
    queue: deque[tuple[int, int]] = field(default_factory=deque)
    _busy_ns: float = 0.0
    _read_at: int = 0
    _at: int = 0

    def capacity(self, now: int) -> float:
        """Runs a second, if it is kept busy."""
        return value_at(self.servers, now) / value_at(self.run_time, now)

    def cpu(self) -> float:
        """How busy its servers were since the last call: a reader for `CPUTarget`."""
        self.pass_time(self.now)
        passed = self.now - self._read_at
        load = self._busy_ns / passed if passed else 0.0
        self._busy_ns, self._read_at = 0.0, self.now
        return min(1.0, load)

    def pass_time(self, now: int) -> None:
        self._busy_ns += (now - self._at) * self.busy / value_at(self.servers, self._at)
        self.now = self._at = now

    def draw(self, chance: random.Random) -> int:
        """How long the next run takes, in nanoseconds."""
        mean = value_at(self.run_time, self.now)
        seconds = chance.lognormvariate(math.log(mean) - self.spread**2 / 2, self.spread)
        return max(1, round(seconds * SECOND))


def value_at(course: Course, now: int) -> float:
    return next((value for start, value in reversed(course) if start * SECOND <= now), course[0][1])


def simulate(
    admission: AdaptiveLimit | Admission,
    service: SimulatedService,
    arrivals: Course,
    seconds: int,
    seed: int = 1,
    seen: Callable[[int, bool], None] | None = None,
) -> list[Second]:
    """Run ``arrivals`` (a second) into ``service``; one row for each second.

    ``seen`` is called for each arrival with its number and whether it was admitted.
    """
    if isinstance(admission, AdaptiveLimit):
        admission = LimitedAdmission(admission)
    return _Run(admission, service, arrivals, seconds, random.Random(seed), seen).rows()


class _Run:
    def __init__(
        self,
        admission: Admission,
        service: SimulatedService,
        arrivals: Course,
        seconds: int,
        chance: random.Random,
        seen: Callable[[int, bool], None] | None,
    ) -> None:
        self._admission, self._service, self._arrivals = admission, service, arrivals
        self._seconds, self._chance, self._seen = seconds, chance, seen
        self._count = 0
        # When a request ends, its number, and when it was admitted.
        self._ends: list[tuple[int, int, int]] = []
        self._changes = sorted({round(start * SECOND) for start, _ in service.servers})

    def rows(self) -> list[Second]:
        rows = []
        arrival = self._next_arrival(0)
        for at in range(self._seconds):
            until = (at + 1) * SECOND
            before, shed, durations = self._count, 0, list[int]()
            limits = self._admission.limit
            while True:
                change = self._changes[0] if self._changes else until
                end = self._ends[0][0] if self._ends else until
                now = min(change, end, arrival)
                if now >= until:
                    break
                self._service.pass_time(now)
                if now == end:
                    durations.append(self._leave())
                elif now == arrival:
                    shed += not self._arrive(now)
                    arrival = self._next_arrival(now)
                else:
                    self._changes.pop(0)
                self._start(now)
            rows.append(self._row(at, limits, before, shed, durations))
        return rows

    def _row(self, at: int, limit: float, before: int, shed: int, durations: list[int]) -> Second:
        durations.sort()
        return Second(
            at=at,
            capacity=self._service.capacity(at * SECOND),
            limit=limit,
            offered=self._count - before,
            shed=shed,
            finished=len(durations),
            p50=_quantile(durations, 0.5),
            p99=_quantile(durations, 0.99),
        )

    def _next_arrival(self, now: int) -> int:
        return now + max(1, round(self._chance.expovariate(value_at(self._arrivals, now)) * SECOND))

    def _arrive(self, now: int) -> bool:
        self._count += 1
        entered = self._admission.enter(self._count, now)
        if self._seen is not None:
            self._seen(self._count, entered)
        if entered:
            self._service.queue.append((self._count, now))
        return entered

    def _start(self, now: int) -> None:
        """Free servers take from the queue; removed servers finish their current run."""
        service = self._service
        servers = value_at(service.servers, now)
        while service.queue and service.busy < servers:
            number, admitted_at = service.queue.popleft()
            service.busy += 1
            end = now + service.draw(self._chance)
            heapq.heappush(self._ends, (end, number, admitted_at))

    def _leave(self) -> int:
        now, number, admitted_at = heapq.heappop(self._ends)
        self._service.busy -= 1
        self._admission.leave(number, now - admitted_at, now)
        return now - admitted_at


def _quantile(ordered: list[int], fraction: float) -> float:
    """In seconds; 0 if there are no values."""
    if not ordered:
        return 0.0
    return ordered[max(1, math.ceil(fraction * len(ordered))) - 1] / SECOND
