"""The server's time, as seen from here."""

from __future__ import annotations

import time

from penstock.clock import WallClock

_TRUST = 1_000_000_000


class ServerClock(WallClock):
    """Tells a server's time without asking: never ahead of it, behind by a network's way at most.

    An answer says what the time was when the server wrote it, which was before it came:
    ``then - now`` is at most the true difference of the clocks. The largest of the last
    second is the best bound; an older one is not believed, as clocks get set. Before
    the first answer it is this machine's wall clock.
    """

    def __init__(self) -> None:
        self._ahead: int | None = None
        self._since = 0

    def seen(self, server: int, here: int) -> None:
        """It was ``server`` there, some time before it was ``here`` (monotonic) here."""
        ahead = server - here
        if self._ahead is None or ahead > self._ahead or here - self._since > _TRUST:
            self._ahead = ahead
            self._since = here

    def at(self, here: int) -> int:
        """What the server's clock shows at least when it is ``here`` (monotonic)."""
        return time.time_ns() if self._ahead is None else self._ahead + here

    def now(self) -> int:
        return self.at(time.monotonic_ns())
