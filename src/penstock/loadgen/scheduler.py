"""The scheduler decides when each request is sent, and on which connection.

Closed loop, without a rate: every connection has as many requests in progress as allowed, and
sends the next when an answer arrives. Open loop, with a rate: the n-th request is due at n/rate
and is sent then, or as soon as a connection has room for it; it keeps the time it was due.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.loadgen.counts import Counts
from penstock.loadgen.load import Load

# How often requests that are due are sent.
TICK = 0.001
# Time for all connections to be made.
PATIENCE = 10.0


class Connection(Protocol):
    """What a wire provides: one connection to the service."""

    @property
    def room(self) -> int:
        """How many more requests it accepts now."""

    def send(self, requests: list[tuple[int, float]]) -> None:
        """Send requests for keys, each with the time it was due. Answers go to the scheduler."""

    def close(self) -> None: ...


Connect = Callable[["Scheduler"], Awaitable[Connection]]


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a run."""

    load: Load
    counts: Counts
    seconds: float  # from the first request to the last answer
    unsent: int  # due, and never sent
    unanswered: int
    cpu: float  # seconds of this process
    trouble: str = ""  # why it could not start


class Scheduler:
    """One run."""

    def __init__(self, load: Load, connect: Connect) -> None:
        self.load = load
        self._connect = connect
        self.counts = Counts(load.keys)
        self.now = time.perf_counter
        self.stopping = False
        self._choices = load.choices()
        self._chosen = -1
        self._turn = 0
        self._waiting: deque[tuple[int, float]] = deque()
        self._connections: list[Connection] = []
        self._reconnecting: set[asyncio.Task[None]] = set()

    async def run(self) -> Run:
        load = self.load
        try:
            async with asyncio.timeout(PATIENCE):
                self._connections = [await self._connect(self) for _ in range(load.connections)]
        except (OSError, TimeoutError) as error:
            for each in self._connections:
                each.close()
            text = str(error) or f"no connection in {PATIENCE:g} s"
            trouble = os.strerror(error.errno) if error.errno else text
            return Run(load, self.counts, 0.0, 0, 0, 0.0, trouble)
        cpu, start = time.process_time(), self.now()
        if load.rate is None:
            for connection in [*self._connections]:
                self.ready(connection)
            await asyncio.sleep(load.seconds)
        else:
            await self._open(start, load.rate)
        self.stopping = True
        end = self.now() + load.patience
        # What was due while it ran is still sent.
        while (self._under_way or self._waiting) and self._connections and self.now() < end:
            await asyncio.sleep(TICK)
        seconds, cpu = self.now() - start, time.process_time() - cpu
        unsent = len(self._waiting)
        unanswered = self._under_way
        for task in self._reconnecting:
            task.cancel()
        for connection in [*self._connections]:
            connection.close()
        await asyncio.sleep(0)
        return Run(load, self.counts, seconds, unsent, unanswered, cpu)

    async def _open(self, start: float, rate: float) -> None:
        load = self.load
        due, total = 0, round(load.seconds * rate)
        while True:
            late = self.now() - start
            if late >= load.seconds and due >= total:
                return
            upto = min(total, int(late * rate) + 1)
            if upto > due:
                self._waiting.extend([self._next(start + n / rate) for n in range(due, upto)])
                due = upto
                self._hand_out()
            await asyncio.sleep(min(TICK, max(0.0, load.seconds - late)))

    def _hand_out(self) -> None:
        """Distribute to the connections in turn, evenly while all of them have room."""
        waiting = self._waiting
        rooms = [(connection, connection.room) for connection in self._connections]
        while waiting:
            free = [(connection, room) for connection, room in rooms if room > 0]
            if not free:
                return
            share = max(1, -(-len(waiting) // len(free)))
            rooms = []
            self._turn += 1
            at = self._turn % len(free)
            for connection, room in free[at:] + free[:at]:
                count = min(share, room, len(waiting))
                if count:
                    self._send(connection, [waiting.popleft() for _ in range(count)])
                rooms.append((connection, room - count))

    def _send(self, connection: Connection, requests: list[tuple[int, float]]) -> None:
        counts = self.counts
        counts.sent += len(requests)
        for key, _ in requests:
            counts.asked_by_key[key] += 1
        connection.send(requests)

    def _next(self, due: float) -> tuple[int, float]:
        choices = self._choices
        self._chosen += 1
        return choices[self._chosen % len(choices)], due

    @property
    def _under_way(self) -> int:
        return self.counts.sent - self.counts.answers - sum(self.counts.errors.values())

    # From the connections ------------------------------------------------------------------

    def ready(self, connection: Connection) -> None:
        """It has room again."""
        if self.load.rate is not None:
            room = min(connection.room, len(self._waiting))
            if room > 0:
                self._send(connection, [self._waiting.popleft() for _ in range(room)])
            return
        if connection.room > 0 and not self.stopping:
            now = self.now()
            self._send(connection, [self._next(now) for _ in range(connection.room)])

    def lost(self, connection: Connection, under_way: int, why: str) -> None:
        """The connection is gone, with the answers to its requests in progress."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        for _ in range(under_way):
            self.counts.failed(why)
        if not self.stopping:
            task = asyncio.get_running_loop().create_task(self._again())
            self._reconnecting.add(task)
            task.add_done_callback(self._reconnecting.discard)

    async def _again(self) -> None:
        pause = 0.01
        while not self.stopping:
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 2)
            try:
                connection = await self._connect(self)
            except OSError:
                continue
            self._connections.append(connection)
            self.ready(connection)
            return
