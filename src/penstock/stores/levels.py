"""Which key is evicted when a store is full.

A key is on one of four levels, kept in the two lowest bits of its hash:

    LITTLE    less than half of its limit is used
    HALF      half of it or more
    REFUSED   it was refused
    LOCKED    it is locked out

A level only rises, until the key's state has expired. Expired keys are evicted first, then those
of the lowest level, and among equals the one that expires soonest.

So a flood of new keys evicts its own keys, not those that are being limited: to reach the level
of a refused key, each key of the flood has to use up its own limit first.
"""

from __future__ import annotations

from penstock.decision import Decision
from penstock.limits import Limit

LITTLE, HALF, REFUSED, LOCKED = range(4)
RUN_OUT = -1
MASK = 3


def half_of(limit: Limit) -> int:
    """Half of a limit, in the unit of a decision's ``_room``."""
    return limit.burst * (limit.interval_ns if "bucket" in limit.algorithm else 1) // 2


def level_after(decision: Decision, half: int, locks: bool) -> int:
    """The level of a key after a decision."""
    if not decision._allowed:
        return LOCKED if locks else REFUSED
    return HALF if decision._room <= half else LITTLE
