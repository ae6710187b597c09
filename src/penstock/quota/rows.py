"""The rows of a ledger, as the databases load and save them.

Times are nanoseconds since 1970 in UTC, amounts whole units. Rows are changed by `book.py` and
the modules above it only, inside of one transaction; `views.py` has what callers see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Later than every time. Sorts and compares without special cases.
NEVER = 2**63 - 1

# Kinds of credits.
PLAN, TOP_UP, PROMO, CARRY, ADJUSTMENT = "plan", "top-up", "promo", "carry", "adjustment"
CREDIT_KINDS = (TOP_UP, PROMO)

# Kinds of entries.
GRANT, SPEND, HOLD, RELEASE, ADJUST, EXPIRE, UNCOVERED, PLAN_CHANGE = (
    "grant", "spend", "hold", "release", "adjust", "expire", "uncovered", "plan",
)  # fmt: skip

# Kinds of holds. An expired reservation is released. A stock may have been spent where nobody
# could write it down, so it stays held until its holder, or an operator, settles it. A source
# holds nothing: it only counts.
RESERVATION, STOCK, SOURCE = "reservation", "stock", "source"

# The state of a credit. An ended one has nothing free, but a hold may still have units of it.
SCHEDULED, LIVE, ENDED, CLOSED = 0, 1, 2, 3

# In the parts of a hold: units of the overdraft, not of a credit.
OVERDRAFT = 0


@dataclass(slots=True)
class Row:
    """``saved`` is the row as the database has it, as a tuple; None if it does not have it."""

    saved: tuple[Any, ...] | None = field(default=None, init=False, repr=False, compare=False)


@dataclass(slots=True)
class AccountRow(Row):
    """``credits`` numbers the account's credits. Nothing happens by itself before ``due``."""

    id: str
    tz: str
    anchor_day: int
    anchor_month: int
    plan: str | None
    next_plan: str | None
    next_at: int
    credits: int
    due: int
    opened: int


@dataclass(slots=True)
class BalanceRow(Row):
    """What an account has of one meter.

    ``granted`` is without what has expired. ``debt`` is the part of ``spent``, ``debt_held`` the
    part of ``held`` that no credit covers: at most ``overdraft`` together. That is what the plan
    allows, ``plan_overdraft``, or more as long as more is owed from an earlier plan. ``period``
    is the start of the last period, 0 before the first.
    """

    account: str
    meter: str
    granted: int = 0
    spent: int = 0
    held: int = 0
    overdraft: int = 0
    plan_overdraft: int = 0
    debt: int = 0
    debt_held: int = 0
    period: int = 0


@dataclass(slots=True)
class CreditRow(Row):
    """Units that were granted. ``gone`` are those that expired or were taken away."""

    account: str
    number: int
    meter: str
    kind: str
    amount: int
    used: int
    held: int
    gone: int
    starts: int
    ends: int
    priority: int
    rollover: int
    ref: str
    state: int
    note: str
    who: str

    @property
    def free(self) -> int:
        return self.amount - self.used - self.held - self.gone

    @property
    def burn_order(self) -> tuple[int, int, int]:
        """Priority, then earliest expiry, then oldest."""
        return self.priority, self.ends, self.number


@dataclass(slots=True)
class PeriodRow(Row):
    """A period of a meter: what the plan allows in it, and what was used in it."""

    account: str
    meter: str
    starts: int
    ends: int
    plan: str
    unit: str
    amount: int
    spent: int = 0
    uncovered: int = 0
    ended: int = 0


@dataclass(slots=True)
class HoldRow(Row):
    """Units that are set aside for a source, and its cumulative totals.

    ``granted``, ``settled`` and ``returned`` only grow. ``remaining`` is what is still held:
    the sum of ``parts``, which are numbers of credits and units. Except for sources, to which
    nothing is granted, ``granted = settled + returned + remaining``.
    """

    account: str
    id: str
    meter: str
    kind: str
    granted: int = 0
    settled: int = 0
    returned: int = 0
    uncovered: int = 0
    remaining: int = 0
    parts: list[list[int]] = field(default_factory=list)
    expires: int = NEVER
    period: int = 0
    created: int = 0
    open: int = 1


@dataclass(slots=True)
class EntryRow:
    """One line of the history. It is never changed.

    ``amount`` is the change of what the account has, ``held`` the change of what is held.
    ``period`` is the start of the meter's period, 0 without one. ``idem`` is unique in the
    account, or empty: an entry of a hold or source is unique by the totals in its row.
    """

    account: str
    meter: str
    period: int
    kind: str
    amount: int
    held: int
    source: str
    idem: str
    at: int
    who: str
    note: str
    seq: int = 0
