"""Changes of plan, and what a plan grants at the beginning of a period.

An upgrade applies at once: the running period gets the difference, and what was used stays used.
A downgrade applies when the running periods end. ``prorate`` grants only the share of the time
that remains in a period; ``reset`` begins a new period now, with nothing used.
"""

from __future__ import annotations

from penstock.quota.book import Book
from penstock.quota.periods import Span, period_at
from penstock.quota.plans import Allowance, Plan
from penstock.quota.rows import (
    NEVER,
    PLAN,
    PLAN_CHANGE,
    SCHEDULED,
    CreditRow,
    PeriodRow,
)
from penstock.quota.values import moment

# Of every credit, unless it is given one: the credit that ends first burns first.
PRIORITY = 100
# When a change of plan applies, if the caller says so.
NOW, NEXT_PERIOD = "now", "next-period"


def begin_period(book: Book, meter: str, span: Span, plan: Plan) -> None:
    allowance = plan.meters[meter]
    book.periods[meter] = PeriodRow(
        book.account.id, meter, span.starts, span.ends, plan.name, allowance.unit,
        allowance.amount,
    )  # fmt: skip
    book.balance(meter).period = span.starts
    book.set_overdraft(meter, plan)
    book.due_by(span.ends)


def grant_plan(book: Book, meter: str, amount: int, instant: int, ends: int, plan: Plan) -> None:
    """Units of a plan for a period, or for the rest of it."""
    book.due_by(ends)
    if not amount:
        book.balance(meter)
        return
    number = book.new_number()
    credit = CreditRow(
        book.account.id, number, meter, PLAN, amount, 0, 0, 0, instant, ends, PRIORITY,
        plan.meters[meter].rollover, f"plan:{number}", SCHEDULED, plan.name, "",
    )  # fmt: skip
    book.add_credit(credit, instant)


def start_plan(book: Book, plan: Plan, now: int, *, prorate: bool = False) -> None:
    """The first periods of an account."""
    for meter in plan.meters:
        _begin(book, meter, plan, now, used=0, prorate=prorate)


def change(
    book: Book, plan: Plan, old: Plan | None, now: int, *, when: str | None,
    prorate: bool, reset: bool, who: str, note: str,
) -> None:  # fmt: skip
    """Change the plan now, or when the running periods end."""
    account = book.account
    account.next_plan, account.next_at = None, NEVER
    if reset or when == NOW or (when is None and _is_upgrade(book, plan, old)):
        account.plan = plan.name
        if reset:
            _reset(book, now)
        _record_change(book, now, f"{plan.name} from now", who, note)
        switch(book, plan, now, prorate=prorate)
        return
    ends = max((period.ends for period in book.periods.values()), default=now)
    account.next_plan, account.next_at = plan.name, ends
    book.due_by(ends)
    day = moment(ends, account.tz).date()
    _record_change(book, now, f"{plan.name} from {day}", who, note)


def _is_upgrade(book: Book, plan: Plan, old: Plan | None) -> bool:
    if old is not None and old.name == plan.name:
        # The plan itself may have been redefined: compare with what its periods were given.
        running = {
            meter: Allowance(
                period.amount, period.unit, overdraft=book.balance(meter).plan_overdraft
            )
            for meter, period in book.periods.items()
        }
        old = Plan(plan.name, running)
    return old is None or plan.is_at_least(old)


def _record_change(book: Book, now: int, what: str, who: str, note: str) -> None:
    text = f"{what}: {note}" if note else what
    number = book.new_number()  # entries of changes are numbered with the credits
    book.record(now, PLAN_CHANGE, "", 0, f"plan:{number}", who=who, note=text)


def _reset(book: Book, now: int) -> None:
    """Running periods end here, and the next ones begin on this day."""
    local = moment(now, book.account.tz)
    book.account.anchor_day, book.account.anchor_month = local.day, local.month
    for meter, period in list(book.periods.items()):
        _end(book, meter, period, now)


def _end(book: Book, meter: str, period: PeriodRow, now: int) -> int:
    """End a period before its time; how much of its plan was used or is held."""
    used = 0
    for credit in _plan_credits(book, meter, period):
        used += credit.used + credit.held
        book.end(credit, now)
    book.end_period(meter, now)
    return used


def switch(book: Book, plan: Plan | None, now: int, *, prorate: bool = False) -> None:
    """From now on every meter has what ``plan`` grants; what was used in a period stays used."""
    for meter, period in list(book.periods.items()):
        allowance = plan.meters.get(meter) if plan is not None else None
        if plan is not None and allowance is not None and allowance.unit == period.unit:
            more = allowance.amount - period.amount
            if prorate:
                more = more * (period.ends - now) // (period.ends - period.starts)
            _resize(book, meter, more, now, period, plan)
            period.amount, period.plan = allowance.amount, plan.name
            book.set_overdraft(meter, plan)
            continue
        used = _end(book, meter, period, now)
        book.set_overdraft(meter, plan)
        if plan is not None and allowance is not None:
            _begin(book, meter, plan, now, used=used, prorate=prorate)
    if plan is not None:
        for meter in plan.meters:
            if meter not in book.periods:
                _begin(book, meter, plan, now, used=0, prorate=prorate)


def _begin(book: Book, meter: str, plan: Plan, now: int, *, used: int, prorate: bool) -> None:
    """A period in the middle of its time."""
    allowance = plan.meters[meter]
    span = period_at(now, allowance.unit, book.anchor)
    amount = allowance.amount
    if prorate:
        amount = amount * (span.ends - now) // (span.ends - span.starts)
    last = book.balance(meter).period
    begin_period(book, meter, Span(max(now, last + 1) if last else span.starts, span.ends), plan)
    grant_plan(book, meter, max(0, amount - used), now, span.ends, plan)


def _resize(book: Book, meter: str, more: int, now: int, period: PeriodRow, plan: Plan) -> None:
    """Grant the difference to a running period, or take away what is free of it."""
    credits = _plan_credits(book, meter, period)
    for credit in credits:
        credit.rollover = plan.meters[meter].rollover
    if more > 0:
        grant_plan(book, meter, more, now, period.ends, plan)
    for credit in credits:
        if more < 0:
            part = min(credit.free, -more)
            book.shrink(credit, now, part)
            more += part


def _plan_credits(book: Book, meter: str, period: PeriodRow) -> list[CreditRow]:
    return [
        credit
        for credit in book.live(meter)
        if credit.kind == PLAN and credit.ends == period.ends
    ]  # fmt: skip
