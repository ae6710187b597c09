"""The book of one account: its rows in memory, and how amounts move between them.

Pure: no database, no clock. An operation (`operations.py`) checks that it can be done, and then
moves amounts with these methods only, so each move changes the balance, the credit, the hold and
the history together::

    granted - spent - held = free units of all live credits - debt - debt_held

The units of a hold are taken from credits in burn order: by priority, then the one that ends
first, then the oldest; from the overdraft last. They stay reserved in those credits, so they
are settled from them even after a credit has ended.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.quota.periods import Anchor
from penstock.quota.plans import Plan
from penstock.quota.rows import (
    CLOSED,
    ENDED,
    EXPIRE,
    GRANT,
    LIVE,
    NEVER,
    OVERDRAFT,
    PLAN,
    SCHEDULED,
    SPEND,
    UNCOVERED,
    AccountRow,
    BalanceRow,
    CreditRow,
    EntryRow,
    HoldRow,
    PeriodRow,
)


class Book:
    """What a transaction has loaded of an account, and what it has changed."""

    def __init__(self, account: AccountRow) -> None:
        self.account = account
        self.balances: dict[str, BalanceRow] = {}
        self.credits: dict[int, CreditRow] = {}
        self.periods: dict[str, PeriodRow] = {}
        self.holds: dict[str, HoldRow] = {}
        self.past_periods: dict[tuple[str, int], PeriodRow] = {}
        self.next_expiry = NEVER  # of a reservation that is not loaded
        self.entries: list[EntryRow] = []

    @property
    def anchor(self) -> Anchor:
        row = self.account
        return Anchor(row.tz, row.anchor_day, row.anchor_month)

    def balance(self, meter: str) -> BalanceRow:
        row = self.balances.get(meter)
        if row is None:
            row = self.balances[meter] = BalanceRow(self.account.id, meter)
        return row

    def available(self, meter: str) -> int:
        """What can be taken now."""
        row = self.balances.get(meter)
        if row is None:
            return 0
        free = sum(credit.free for credit in self.live(meter))
        return max(0, free + row.plan_overdraft - row.debt - row.debt_held)

    def live(self, meter: str) -> list[CreditRow]:
        """The credits that have begun and not been closed, in burn order."""
        credits = [c for c in self.credits.values() if c.state == LIVE and c.meter == meter]
        credits.sort(key=lambda credit: credit.burn_order)
        return credits

    def record(
        self, now: int, kind: str, meter: str, amount: int, idem: str = "", *, held: int = 0,
        source: str = "", who: str = "", note: str = "", period: int | None = None,
    ) -> EntryRow:  # fmt: skip
        """Append to the history."""
        if period is None:
            current = self.periods.get(meter)
            period = current.starts if current is not None else 0
        account = self.account.id
        entry = EntryRow(account, meter, period, kind, amount, held, source, idem, now, who, note)
        self.entries.append(entry)
        return entry

    # Credits -------------------------------------------------------------------------------

    def add_credit(self, credit: CreditRow, now: int, kind: str = GRANT) -> None:
        """A new credit. One that begins later counts from then on."""
        self.credits[credit.number] = credit
        if credit.starts > now:
            credit.state = SCHEDULED
            self.due_by(credit.starts)
        else:
            self.start(credit, now, kind)

    def start(self, credit: CreditRow, now: int, kind: str = GRANT) -> None:
        """From now on a credit counts. What is owed is paid from it."""
        balance = self.balance(credit.meter)
        credit.state = LIVE
        balance.granted += credit.amount
        self.due_by(credit.ends)
        paid = min(balance.debt, credit.amount)
        balance.debt -= paid
        credit.used += paid
        _lower_overdraft(balance)
        self.record(
            now, kind, credit.meter, credit.amount, f"credit:{credit.number}",
            source=credit.ref, who=credit.who, note=credit.note,
        )  # fmt: skip
        self.close_if_empty(credit)

    def new_number(self) -> int:
        self.account.credits += 1
        return self.account.credits

    def remove(self, credit: CreditRow, amount: int) -> None:
        """Free units of a credit are gone. The caller writes the entry."""
        credit.gone += amount
        self.balance(credit.meter).granted -= amount
        self.close_if_empty(credit)

    def shrink(self, credit: CreditRow, now: int, amount: int) -> None:
        """Some free units of a credit expire."""
        if amount:
            self.remove(credit, amount)
            self.record(now, EXPIRE, credit.meter, -amount, f"expire:{credit.number}:{credit.gone}")

    def end(self, credit: CreditRow, now: int) -> None:
        """A credit ends: what is free of it expires, what is held of it stays held."""
        self.shrink(credit, now, credit.free)
        credit.ends = min(credit.ends, now)
        credit.state = ENDED if credit.held else CLOSED

    def close_if_empty(self, credit: CreditRow) -> None:
        """Those of plans stay until their period ends: a change of plan looks at them."""
        if credit.free or credit.held:
            return
        if credit.state == ENDED or (credit.state == LIVE and credit.kind != PLAN):
            credit.state = CLOSED

    # Holds ---------------------------------------------------------------------------------

    def take(self, hold: HoldRow, amount: int) -> None:
        """Set units aside for a hold, in burn order. There must be enough."""
        balance = self.balance(hold.meter)
        balance.held += amount
        hold.remaining += amount
        for credit in self.live(hold.meter):
            part = min(credit.free, amount)
            if part > 0:
                credit.held += part
                _add_part(hold.parts, credit.number, part)
                amount -= part
        if amount:
            balance.debt_held += amount
            _add_part(hold.parts, OVERDRAFT, amount)

    def use(self, hold: HoldRow, amount: int) -> None:
        """Units that a hold has set aside are spent. The caller writes the entry."""
        balance = self.balance(hold.meter)
        balance.held -= amount
        balance.spent += amount
        for number, part in _take_parts(hold, amount):
            if number == OVERDRAFT:
                balance.debt_held -= part
                balance.debt += part
            else:
                credit = self.credits[number]
                credit.held -= part
                credit.used += part
                self.close_if_empty(credit)
        self._repay(balance)

    def put_back(self, hold: HoldRow, amount: int, now: int) -> None:
        """Units that a hold has set aside are free again, the last taken first.

        Those of a credit that has ended expire.
        """
        balance = self.balance(hold.meter)
        balance.held -= amount
        for number, part in _take_parts(hold, amount, last=True):
            if number == OVERDRAFT:
                balance.debt_held -= part
                continue
            credit = self.credits[number]
            credit.held -= part
            if credit.state == ENDED:
                self.shrink(credit, now, credit.free)
                self.close_if_empty(credit)
        self._repay(balance)

    def _repay(self, balance: BalanceRow) -> None:
        """Free units pay what is owed."""
        if balance.debt:
            for credit in self.live(balance.meter):
                paid = min(credit.free, balance.debt)
                if paid > 0:
                    credit.used += paid
                    balance.debt -= paid
                    self.close_if_empty(credit)
        _lower_overdraft(balance)

    def spend(
        self, now: int, meter: str, amount: int, idem: str = "", *, held: int = 0,
        source: str = "", who: str = "", note: str = "", period: int | None = None,
    ) -> EntryRow:  # fmt: skip
        """The entry of units that were spent, also in the use of the period."""
        entry = self.record(
            now, SPEND, meter, -amount, idem,
            held=-held, source=source, who=who, note=note, period=period,
        )  # fmt: skip
        used = self.period(meter, entry.period)
        if used is not None:
            used.spent += amount
        return entry

    def uncovered(self, now: int, meter: str, amount: int, source: str) -> None:
        """Units that were used although nothing was left: written down, not in the balance."""
        entry = self.record(now, UNCOVERED, meter, -amount, source=source)
        used = self.period(meter, entry.period)
        if used is not None:
            used.uncovered += amount

    def period(self, meter: str, starts: int) -> PeriodRow | None:
        """A period of a meter, the current one or the one of a hold."""
        current = self.periods.get(meter)
        if current is not None and current.starts == starts:
            return current
        return self.past_periods.get((meter, starts))

    def end_period(self, meter: str, now: int) -> None:
        period = self.periods.pop(meter)
        period.ends, period.ended = min(period.ends, now), 1
        self.past_periods[meter, period.starts] = period

    def set_overdraft(self, meter: str, plan: Plan | None) -> None:
        """What the plan allows from now on."""
        allowance = plan.meters.get(meter) if plan is not None else None
        allowed = allowance.overdraft if allowance is not None else 0
        if allowed or meter in self.balances:
            row = self.balance(meter)
            row.plan_overdraft = allowed
            row.overdraft = max(row.overdraft, allowed)
            _lower_overdraft(row)

    def due_by(self, instant: int) -> None:
        self.account.due = min(self.account.due, instant)


def _lower_overdraft(balance: BalanceRow) -> None:
    """A plan with less overdraft asks for nothing back at once: the rest ends as it is paid."""
    owed = balance.debt + balance.debt_held
    balance.overdraft = max(balance.plan_overdraft, min(balance.overdraft, owed))


def _add_part(parts: list[list[int]], number: int, amount: int) -> None:
    if parts and parts[-1][0] == number:
        parts[-1][1] += amount
    else:
        parts.append([number, amount])


def _take_parts(hold: HoldRow, amount: int, last: bool = False) -> Iterable[tuple[int, int]]:
    """Remove ``amount`` from the parts of a hold: the first taken first, or the last."""
    assert 0 <= amount <= hold.remaining
    hold.remaining -= amount
    taken: list[tuple[int, int]] = []
    at = -1 if last else 0
    while amount:
        part = hold.parts[at]
        units = min(part[1], amount)
        taken.append((part[0], units))
        amount -= units
        part[1] -= units
        if not part[1]:
            del hold.parts[at]
    return taken
