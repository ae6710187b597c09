"""What happens to an account by the passing of time.

Nothing runs in the background. Every operation first brings the account up to its own time: all
that has become due since the last one happens in the order of time, each at its own time::

    a reservation expires    its units are free again
    a credit ends            its free units expire
    a period ends            unused units of the plan are carried over, up to ``rollover``;
                             the next period's units are granted
    a change of plan is due  see `plan_change.py`
    a credit begins          it counts from then on

Time never goes back: a clock that does finds the account as it was left.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.quota.book import Book
from penstock.quota.periods import Span, period_at
from penstock.quota.plan_change import PRIORITY, begin_period, grant_plan, switch
from penstock.quota.plans import Plan
from penstock.quota.rows import (
    CARRY,
    LIVE,
    NEVER,
    PLAN,
    RELEASE,
    RESERVATION,
    SCHEDULED,
    CreditRow,
    HoldRow,
)


def bring_up_to(book: Book, now: int, plans: Mapping[str, Plan]) -> None:
    """All that is due until ``now``."""
    account = book.account
    while account.due <= now:
        instant = max(_next(book), account.opened)
        if instant > now:
            account.due = instant
            return
        for hold in list(book.holds.values()):
            if hold.open and hold.kind == RESERVATION and hold.expires <= instant:
                release(book, hold, instant, note="expired")
        ended = [c for c in book.credits.values() if c.state == LIVE and c.ends <= instant]
        unused: dict[str, tuple[int, int]] = {}
        for credit in sorted(ended, key=lambda credit: credit.burn_order):
            if credit.kind == PLAN:
                free, most = unused.get(credit.meter, (0, 0))
                unused[credit.meter] = free + credit.free, max(most, credit.rollover)
            book.end(credit, instant)
        _renew(book, instant, now, plans, unused)
        for credit in book.credits.values():
            if credit.state == SCHEDULED and credit.starts <= instant:
                book.start(credit, instant)
        account.due = _next(book)


def _next(book: Book) -> int:
    """When the next thing happens."""
    instants = [book.account.next_at, book.next_expiry]
    instants += [period.ends for period in book.periods.values()]
    for credit in book.credits.values():
        if credit.state == SCHEDULED:
            instants.append(credit.starts)
        elif credit.state == LIVE:
            instants.append(credit.ends)
    instants += [
        hold.expires for hold in book.holds.values() if hold.open and hold.kind == RESERVATION
    ]
    return min(instants, default=NEVER)


def _renew(
    book: Book,
    instant: int,
    now: int,
    plans: Mapping[str, Plan],
    unused: Mapping[str, tuple[int, int]],
) -> None:
    account = book.account
    ended = [meter for meter, period in book.periods.items() if period.ends <= instant]
    for meter in ended:
        book.end_period(meter, instant)
    changes = account.next_plan is not None and account.next_at <= instant
    if changes:
        account.plan, account.next_plan, account.next_at = account.next_plan, None, NEVER
    plan = plans[account.plan] if account.plan is not None else None
    if plan is not None:
        for meter in ended:
            if meter in plan.meters:
                _renew_meter(book, meter, instant, now, plan, *unused.get(meter, (0, 0)))
    if changes:
        switch(book, plan, instant)


def _renew_meter(
    book: Book, meter: str, instant: int, now: int, plan: Plan, free: int, most: int
) -> None:
    allowance = plan.meters[meter]
    span = period_at(instant, allowance.unit, book.anchor)
    if not book.balance(meter).debt and book.account.next_plan is None:
        # Nothing happened in the periods before the last but one: what they granted has expired.
        last = period_at(now, allowance.unit, book.anchor)
        previous = period_at(last.starts - 1, allowance.unit, book.anchor)
        if span.starts < previous.starts:
            span = previous
            free, most, instant = allowance.amount, allowance.rollover, span.starts
    carried = min(free, most)
    # A plan with longer periods takes over within one: it begins where the last one ended.
    starts = max(span.starts, instant)
    begin_period(book, meter, Span(starts, span.ends), plan)
    if carried:
        number = book.new_number()
        book.add_credit(
            CreditRow(
                book.account.id, number, meter, CARRY, carried, 0, 0, 0, instant, span.ends,
                PRIORITY, 0, f"carry:{meter}:{starts}", SCHEDULED, "", "",
            ),
            instant,
            CARRY,
        )  # fmt: skip
    grant_plan(book, meter, allowance.amount, instant, span.ends, plan)


def release(book: Book, hold: HoldRow, now: int, who: str = "", note: str = "") -> int:
    """A hold gives everything back and is closed; how much that was."""
    left = hold.remaining
    hold.open = 0
    hold.returned += left
    if left:
        book.record(
            now, RELEASE, hold.meter, 0,
            held=-left, source=hold.id, who=who, note=note, period=hold.period,
        )  # fmt: skip
        book.put_back(hold, left, now)
    return left
