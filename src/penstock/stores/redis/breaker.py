"""The circuit breaker: keeps a dead server from costing every request its deadline.

A `Circuit` that opens on a lost connection that cannot be made anew, or on two deadlines
in a row. While it is not closed nobody is kept waiting. The attempts to connect, log in and
be answered in time are the store's own, one at a time, so no request pays for them. Pauses
grow from 50 to 300 ms.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.circuit import CLOSED, HALF_OPEN, OPEN, Circuit

__all__ = ["CLOSED", "HALF_OPEN", "OPEN", "Breaker"]

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.3
STRIKES = 2


class Breaker(Circuit):
    """Counts deadlines. Times are seconds of any one clock."""

    def __init__(self, patience: float, chance: Callable[[], float] = random.random) -> None:
        super().__init__(FIRST_PAUSE, LONGEST_PAUSE, chance)
        self._patience = patience
        self._strikes = 0
        self._struck_at = float("-inf")

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

    def close(self) -> None:
        super().close()
        self._strikes = 0
        self._struck_at = float("-inf")
