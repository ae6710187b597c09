"""Which key gives way when a store is full: the one whose loss gives away least.

A key is on one of four levels, kept in the two lowest bits of its hash:

    LITTLE    less than half of its limit is used
    HALF      half of it or more
    REFUSED   it was refused
    LOCKED    it was refused by a limit with a lockout, and is shut out for now

A level only rises, until the key's state has run out. First go keys whose state has run
out, then those of the lowest level; among equals, the one that would run out soonest.

So a flood of new keys pushes out itself, and not who is being limited: to get as high as
a refused key, each key of the flood has to use up its own limit first.
"""

from __future__ import annotations

from penstock.decision import Decision
from penstock.limit import Limit

LITTLE, HALF, REFUSED, LOCKED = range(4)
RUN_OUT = -1
MASK = 3


def half_of(limit: Limit) -> int:
    """What is left of a limit when half of it is used, as a decision's ``_room`` counts it."""
    return limit.burst * (limit.interval_ns if "bucket" in limit.algorithm else 1) // 2


def level_after(decision: Decision, half: int, locks: bool) -> int:
    """The level that a key has earned by a decision that was booked."""
    if not decision._allowed:
        return LOCKED if locks else REFUSED
    return HALF if decision._room <= half else LITTLE
