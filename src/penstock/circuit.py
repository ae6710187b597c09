"""Circuit: the state machine of a circuit breaker, without a lock, a clock or a wait.

::

    closed ── too many failures (the owner decides) ──> open
    open ── after a pause: an attempt ──> half-open
    half-open ── it succeeded ──> closed
    half-open ── it failed ──> open, with a pause twice as long, up to the longest

Each pause is shortened at random by up to a half, so that a fleet does not retry in one wave.
The Redis store and `penstock.CircuitBreaker` are built on it; they differ in what counts as too
many failures, and in how they probe: the store makes an attempt itself, while a `CallCircuit` lets
some of its callers through.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import NewType

CLOSED = "closed"
OPEN = "open"
HALF_OPEN = "half-open"

# Identifies the period of one state in which a call began; passed back with its result.
Permit = NewType("Permit", int)

CELLS = 10


class Circuit:
    """The state, its start, and its reason. Pauses are in any unit; times are of any one clock."""

    def __init__(
        self,
        first_pause: float,
        longest_pause: float,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.state = CLOSED
        self.opened_at = 0.0
        self.reason = ""
        self._first = first_pause
        self._longest = longest_pause
        self._chance = chance
        self._pause = first_pause

    def trip(self, now: float, reason: str) -> bool:
        """Open it; returns whether it was closed before."""
        was_closed = self.state == CLOSED
        if was_closed:
            self.opened_at = now
        self.state = OPEN
        self.reason = reason
        return was_closed

    def probe(self) -> None:
        self.state = HALF_OPEN

    def close(self) -> None:
        self.state = CLOSED
        self._pause = self._first

    def pause(self) -> float:
        """How long to wait before the next attempt."""
        pause = self._pause * (0.5 + self._chance() / 2)
        self._pause = min(2 * self._pause, self._longest)
        return pause


class CallCircuit(Circuit):
    """A circuit that counts how calls end, and probes by letting some through.

    Times are nanoseconds. A permit is the number of the period of one state in which a call
    began; results with the number of an earlier period are ignored. ``changes`` lists the
    changes without an event so far: state before, after, and why.
    """

    def __init__(
        self,
        failures: int,
        ratio: float,
        window: int,
        pause: int,
        longest_pause: int,
        probes: int,
        chance: Callable[[], float],
    ) -> None:
        super().__init__(pause, longest_pause, chance)
        self._failures = failures
        self._ratio = ratio
        self._probes = probes
        self._recent = Recent(window)
        self.changes: deque[tuple[str, str, str]] = deque()
        self._period = 1
        # Not before this time: if open, the next probe; if half-open, treat probes as lost.
        self._until = 0
        self._wait = 0
        self._probing = 0
        self._succeeded = 0

    def allows(self, now: int) -> Permit | None:
        if self.state != CLOSED:
            self._until = min(self._until, now + self._wait)  # the clock may have stepped back
            if self.state == OPEN and now >= self._until:
                self.probe()
                self._changed(OPEN)
                self._probing = self._succeeded = 0
            elif self.state == HALF_OPEN and self._probing > self._succeeded and now >= self._until:
                self.open(now, "a probe did not end in time")
            if self.state == OPEN or self._probing >= self._probes:
                return None
            self._probing += 1
            self._hold(now, int(self._longest))
        return Permit(self._period)

    def succeeded(self, permit: Permit | None, now: int) -> None:
        if not self._is_current(permit):
            return
        if self.state == CLOSED:
            self._recent.add(now, failed=False)
        elif self.state == HALF_OPEN:
            self._succeeded += 1
            if self._succeeded >= self._probes:
                self.close()

    def failed(self, permit: Permit | None, now: int, reason: str) -> None:
        if not self._is_current(permit):
            return
        if self.state == HALF_OPEN:
            self.open(now, reason)
        elif self.state == CLOSED:
            self._recent.add(now, failed=True)
            calls, failures = self._recent.totals(now)
            if failures >= self._failures and failures >= self._ratio * calls:
                self.open(now, reason)

    def gave_up(self, permit: Permit | None) -> None:
        if self._is_current(permit) and self.state == HALF_OPEN:
            self._probing = max(self._succeeded, self._probing - 1)

    def open(self, now: int, reason: str) -> None:
        if self.state != OPEN:
            before = self.state
            self.trip(now, reason)
            self._changed(before)
            self._hold(now, round(self.pause()))

    def close(self) -> None:
        if self.state != CLOSED:
            before = self.state
            super().close()
            self._changed(before)
        self._recent.clear()

    def retry_after(self, now: int) -> int:
        """Time until a call may pass; during probes, an estimate."""
        if self.state == CLOSED or (self.state == HALF_OPEN and self._probing < self._probes):
            return 0
        left = min(max(0, self._until - now), self._wait)
        return left if self.state == OPEN else min(left, int(self._first))

    def _changed(self, before: str) -> None:
        self._period += 1
        self.changes.append((before, self.state, self.reason))

    def _is_current(self, permit: Permit | None) -> bool:
        return permit is None or permit == self._period

    def _hold(self, now: int, wait: int) -> None:
        self._wait = wait
        self._until = now + wait


class Recent:
    """Calls that ended in the last window and how many failed, counted in tenths of it."""

    def __init__(self, window: int) -> None:
        self._tenth = max(1, window // CELLS)
        self._cells: deque[list[int]] = deque()

    def add(self, now: int, failed: bool) -> None:
        number = now // self._tenth
        if self._cells and number < self._cells[-1][0]:
            self._cells.clear()  # the clock stepped back
        if not self._cells or self._cells[-1][0] != number:
            self._cells.append([number, 0, 0])
            while self._cells[0][0] <= number - CELLS:
                self._cells.popleft()
        self._cells[-1][1] += 1
        self._cells[-1][2] += failed

    def totals(self, now: int) -> tuple[int, int]:
        number = now // self._tenth
        live = [cell for cell in self._cells if cell[0] > number - CELLS]
        return sum(cell[1] for cell in live), sum(cell[2] for cell in live)

    def clear(self) -> None:
        self._cells.clear()
