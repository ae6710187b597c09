"""The circuit breaker: keeps a dead server from costing every request its deadline.

::

    closed ── a lost connection that cannot be made anew, or two deadlines in a row ──> open
    open ── after a pause: one attempt to connect, log in and be answered in time ──> half-open
    half-open ── it worked ──> closed
    half-open ── it did not ──> open, with a longer pause

While it is not closed nobody is kept waiting. The attempts are the store's own, one at a
time, so no request pays for them. Pauses grow from 50 to 300 ms, and each is
shortened by chance, so that a fleet does not come back in one wave.
"""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.3
STRIKES = 2

CLOSED = "closed"
OPEN = "open"
HALF_OPEN = "half-open"


class Breaker:
    """The state, and nothing that waits. Times are seconds of any one clock."""

    def __init__(self, patience: float, chance: Callable[[], float] = random.random) -> None:
        self.state = CLOSED
        self.opened_at = 0.0
        self.reason = ""
        self._patience = patience
        self._chance = chance
        self._strikes = 0
        self._struck_at = float("-inf")
        self._pause = FIRST_PAUSE

    def missed(self, now: float) -> bool:
        """A deadline passed; whether that is one too many.

        Requests that were under way together miss theirs together: they count once.
        """
        if now - self._struck_at >= self._patience:
            self._struck_at = now
            self._strikes += 1
        return self._strikes >= STRIKES

    def answered(self) -> None:
        self._strikes = 0

    def trip(self, now: float, reason: str) -> bool:
        """Open it; whether it was closed until now."""
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
        self._strikes = 0
        self._struck_at = float("-inf")
        self._pause = FIRST_PAUSE

    def pause(self) -> float:
        """How long to wait before the next attempt."""
        pause = self._pause * (0.5 + self._chance() / 2)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return pause
