"""How long this machine kept us from running, and when: for tests that look at milliseconds.

Times are seconds of `time.monotonic`. There are two witnesses. A heartbeat that comes late
shows that a thread or an event loop did not get to run, for whatever reason. The kernel knows
exactly how long each thread was ready to run and had no processor; that is asked for every few
milliseconds, where there is a Linux to ask.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from pathlib import Path
from typing import Self

# Shorter waits are the daily bread of a program with threads.
WORTH_NOTING = 0.003
_EVERY = 0.002
_PATIENCE = 60.0


class Stalls:
    """When something that should have run did not, as heartbeats tell it."""

    def __init__(self) -> None:
        self._found: list[tuple[float, float]] = []
        self.known_until = 0.0  # what is longer ago than this is all told

    def note(self, due: float, came: float, busy: float = 0.0) -> None:
        """It was due then and came later; what it was busy with itself is no excuse."""
        if came - due - busy > WORTH_NOTING:
            self._found.append((due, came - busy))
        self.known_until = came

    def within(self, start: float, end: float) -> float:
        """How much of this time was lost; no moment counts twice."""
        lost, seen = 0.0, start
        for left, right in sorted(self._found):
            left, right = max(left, seen), min(right, end)
            if right > left:
                lost, seen = lost + right - left, right
        return lost

    @property
    def worst(self) -> float:
        return max((right - left for left, right in self._found), default=0.0)


class Queue:
    """How long the threads of this process, all together, waited for a processor."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._times = [time.monotonic()]
        self._waits = [0.0]  # up to then
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queue", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_PATIENCE)
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    @property
    def known_until(self) -> float:
        return self._times[-1]

    def within(self, start: float, end: float) -> float:
        """In this time, rounded up to when we looked; not more than there was."""
        first = max(0, bisect_left(self._times, start) - 1)
        last = min(len(self._waits) - 1, bisect_left(self._times, end))
        return max(0.0, min(end - start, self._waits[last] - self._waits[first]))

    def _run(self) -> None:
        last: dict[str, int] = {}
        rounds = 0
        while not self._stop.is_set():
            if rounds % 20 == 0:
                self._look_for_threads()
            rounds += 1
            waited = 0
            for name, file in self._files.items():
                try:
                    now = int(os.pread(file, 100, 0).split()[1])
                except (OSError, IndexError):  # the thread has ended, or none is told
                    continue
                waited += now - last.get(name, now)
                last[name] = now
            self._waits.append(self._waits[-1] + waited / 1e9)
            self._times.append(time.monotonic())
            time.sleep(_EVERY)

    def _look_for_threads(self) -> None:
        try:
            names = os.listdir("/proc/self/task")
        except OSError:
            return
        for name in names:
            if name not in self._files:
                try:
                    path = Path("/proc/self/task", name, "schedstat")
                    self._files[name] = os.open(path, os.O_RDONLY)
                except OSError:
                    continue


class Machine:
    """Both witnesses."""

    def __init__(self) -> None:
        self.beats = Stalls()
        self.queue = Queue()

    @property
    def known_until(self) -> float:
        """A stall is told of when it is over: all that began before this moment are known."""
        return min(self.beats.known_until, self.queue.known_until)

    def lost(self, start: float, end: float) -> float:
        return max(self.beats.within(start, end), self.queue.within(start, end))


class Watched(Machine):
    """A machine whose heartbeat is a thread of its own: use it as a context manager."""

    def __init__(self) -> None:
        super().__init__()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self.queue.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_PATIENCE)
        self.queue.__exit__()

    def took(self, start: float) -> float:
        """The seconds since then, without those in which we were kept from running."""
        now = time.monotonic()
        return now - start - self.lost(start, now)

    def _beat(self) -> None:
        while not self._stop.is_set():
            due = time.monotonic() + _EVERY
            time.sleep(_EVERY)
            self.beats.note(due, time.monotonic())
