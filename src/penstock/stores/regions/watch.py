"""Watch: the demand that one instance has seen, for the keys that need more than their floor."""

from __future__ import annotations

import threading

from penstock.stores.regions.messages import Account

# So many keys are watched at a time; others have to do with their floor.
MOST_WATCHED = 100_000
# Ticks without a hit after which a key is no longer watched.
_IDLE_TICKS = 30


class Watch:
    """For any thread. Demand of keys that are not watched is not counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._units: dict[Account, int] = {}
        self._idle: dict[Account, int] = {}

    def __len__(self) -> int:
        return len(self._units)

    def offer(self, account: Account, units: int, *, start: bool) -> None:
        """So many units were asked for; ``start`` to watch the key if it is not yet."""
        with self._lock:
            before = self._units.get(account)
            if before is not None:
                self._units[account] = before + units
            elif start and len(self._units) < MOST_WATCHED:
                self._units[account] = units

    def take(self) -> dict[bytes, int]:
        """What came since the last time, by packed account."""
        taken: dict[bytes, int] = {}
        with self._lock:
            for account, units in list(self._units.items()):
                if units:
                    taken[account.packed()] = units
                    self._units[account] = 0
                    self._idle.pop(account, None)
                    continue
                ticks = self._idle.get(account, 0) + 1
                self._idle[account] = ticks
                if ticks > _IDLE_TICKS:
                    del self._units[account], self._idle[account]
        return taken

    def put_back(self, taken: dict[bytes, int]) -> None:
        """The site was not told."""
        for data, units in taken.items():
            self.offer(Account.unpacked(data), units, start=True)
