"""The row of a stock in a store: units that a ledger has set aside, and requests may spend.

A thin layer over the verbs of the store's counters, which `penstock.algorithms.stock` gives their
meaning. All of them can be repeated, and none can add a unit that the ledger has not set aside.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from penstock.decision import Decision
from penstock.durations import DAY, MICROSECOND
from penstock.errors import StoreUnavailable
from penstock.limit_options import MOST_UNITS
from penstock.stores.base import Counters

# The longest life of a stock. Times in Redis are exact for 2.3 years.
LONGEST = 366 * DAY
# Names of stocks are spread over so much time before they were opened.
_SPREAD = 180 * DAY // MICROSECOND


class RowState(NamedTuple):
    """A stock as it is in the store. ``opened`` is its name: a time that no other stock has."""

    opened: int
    granted: int
    spent: int
    ends: int


def new_name(now: int) -> int:
    """A time for a new stock, in whole microseconds: the chance of two alike is 10**-13."""
    return (now // MICROSECOND - random.SystemRandom().randrange(_SPREAD)) * MICROSECOND


def state_of(look: Decision, now: int) -> RowState | None:
    """What a look at `MOST_UNITS` has found, None for no stock.

    `StoreUnavailable` if the store could not be asked: that says nothing about the stock.
    """
    if look.degraded:
        raise StoreUnavailable("the store cannot be asked for a stock")
    if look._reset <= 0:
        return None
    spent = max(0, look._retry) // MICROSECOND
    return RowState(look._mark, look._room + spent, spent, now + look._reset)


def read(counters: Counters, account: str) -> RowState | None:
    """The stock of an account, None if there is none (any more)."""
    return state_of(counters.peek(account, MOST_UNITS), counters.now())


def put_in(counters: Counters, account: str, opened: int, granted: int, ends: int) -> None:
    """The total of units that the stock of this name has been given so far, and when it ends."""
    ends = min(ends, counters.now() + LONGEST)
    counters.refund(account, max(1, granted), opened, -(ends // MICROSECOND))


def open_row(counters: Counters, account: str, opened: int) -> None:
    """Open a stock, unless there is one."""
    counters.charge(account, opened // MICROSECOND)
