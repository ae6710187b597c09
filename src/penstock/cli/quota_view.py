"""Tables of a ledger: numbers with separators, times in the account's zone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from penstock.cli.paint import Paint
from penstock.quota import Balance, Entry, MeterBalance, OpenHold, Plan


def plain(value: object) -> object:
    """As JSON has it: times in RFC 3339, with their offset."""
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def when(moment: datetime | None) -> str:
    """``2026-02-01 00:00``; only the date at midnight."""
    if moment is None:
        return "never"
    midnight = (moment.hour, moment.minute, moment.second) == (0, 0, 0)
    return f"{moment:%Y-%m-%d}" if midnight else f"{moment:%Y-%m-%d %H:%M}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as they need to be; numbers to the right."""
    lines = [[*map(_cell, row)] for row in rows]
    texts = [list(head), *lines]
    widths = [max(len(line[column]) for line in texts) for column in range(len(head))]
    right = [
        bool(lines) and all(_is_number(line[column]) for line in lines)
        for column in range(len(head))
    ]
    return "".join(
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        + "\n"
        for line in texts
    )


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_number(text: str) -> bool:
    return not text or text.lstrip("+-").replace(",", "").isdigit()


def balance(balance: Balance, paint: Paint) -> str:
    account = balance.account
    plan = f"plan {account.plan}" if account.plan else "no plan"
    head = f"{paint.bold(account.name)}  {plan}, times in {account.tz}\n"
    if account.next_plan is not None:
        head += f"plan {account.next_plan} from {when(account.next_plan_from)}\n"
    if not balance.meters:
        return f"{head}nothing was granted yet\n"
    meters = table(
        ("meter", "available", "held", "used", "of", "period", "renews"),
        [_meter(meter) for meter in balance.meters.values()],
    )
    credits = [
        (
            meter.meter, credit.kind, credit.left, credit.held, credit.amount,
            when(credit.expires), "from " + when(credit.starts) if credit.scheduled else credit.ref,
        )
        for meter in balance.meters.values()
        for credit in meter.credits
        if credit.kind != "plan"
    ]  # fmt: skip
    text = f"{head}\n{meters}"
    if credits:
        names = ("meter", "credit", "left", "held", "of", "expires", "ref")
        text += f"\n{table(names, credits)}"
    for meter in balance.meters.values():
        if meter.runs_out is not None:
            text += f"\n{meter.meter} run out on {when(meter.runs_out)} at this pace\n"
    return text


def _meter(meter: MeterBalance) -> tuple[object, ...]:
    period = meter.period
    if period is None:
        return meter.meter, meter.available, meter.held, meter.spent, "", "", ""
    span = f"{when(period.starts)} to {when(period.ends)}"
    return (
        meter.meter, meter.available, meter.held, period.used, period.amount, span,
        when(period.ends),
    )  # fmt: skip


def accounts(balances: Sequence[Balance]) -> str:
    rows: list[tuple[object, ...]] = []
    for one in balances:
        name, plan = one.account.name, one.account.plan or ""
        for meter in one.meters.values():
            used = meter.period.used if meter.period else meter.spent
            rows.append((name, plan, meter.meter, meter.available, meter.held, used))
        if not one.meters:
            rows.append((name, plan, "", "", "", ""))
    return table(("account", "plan", "meter", "available", "held", "used"), rows)


def history(entries: Sequence[Entry], tz: str) -> str:
    zone = ZoneInfo(tz)
    rows = [
        (
            entry.seq, f"{entry.at.astimezone(zone):%Y-%m-%d %H:%M:%S}", entry.kind, entry.meter,
            f"{entry.amount:+,}" if entry.amount else "", f"{entry.held:+,}" if entry.held else "",
            entry.source, entry.who, " ".join(entry.note.split()),
        )
        for entry in entries
    ]  # fmt: skip
    names = ("seq", f"time in {tz}", "kind", "meter", "amount", "held", "source", "who", "note")
    return table(names, rows)


def holds(holds: Sequence[OpenHold], zones: Mapping[str, str]) -> str:
    """Times in each account's own zone, which is named."""
    rows = [
        (
            hold.account, hold.meter, hold.kind, hold.held, hold.settled, hold.id,
            *(
                when(moment.astimezone(ZoneInfo(zones[hold.account]))) if moment else "never"
                for moment in (hold.created, hold.expires)
            ),
            zones[hold.account],
        )
        for hold in holds
    ]  # fmt: skip
    names = ("account", "meter", "kind", "held", "settled", "id", "since", "until", "time in")
    return table(names, rows) if rows else "nothing is held\n"


def plans(plans: Mapping[str, Plan]) -> str:
    rows = [
        (name, meter, allowance.amount, allowance.unit, allowance.rollover, allowance.overdraft)
        for name, plan in plans.items()
        for meter, allowance in plan.meters.items()
    ]
    return table(("plan", "meter", "amount", "per", "rollover", "overdraft"), rows)
