"""Whether the parts of a ledger agree: entries = balances = credits = holds = periods.

Every amount is written twice: as an entry of the history, which is never changed, and in the row
that decisions are made by. `reconcile` adds the entries up again and compares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.clock import Clock
from penstock.quota.databases.base import Snapshot
from penstock.quota.reading import OpenHold, open_holds
from penstock.quota.values import moment

# What is compared: a name, the sum of the history, and the rows that it must equal. Each query
# gives (account, what exactly, number).
_ENTRY = "SELECT account, meter, sum({}) FROM penstock_entry WHERE {} GROUP BY account, meter"
_BALANCE = "SELECT account, meter, {} FROM penstock_balance"
_CREDIT = "SELECT account, meter, sum({}) FROM penstock_credit WHERE {} GROUP BY account, meter"
_NOT_UNCOVERED = "kind <> 'uncovered'"
# Of sources. Those of `spend` have a name.
_SETTLED = "substr(idem, 1, 6) <> 'spend:'"

COMPARISONS: list[tuple[str, str, str]] = [
    (
        "entries and balance: granted less spent",
        _ENTRY.format("amount", _NOT_UNCOVERED),
        _BALANCE.format("granted - spent"),
    ),
    (
        "entries and balance: spent",
        _ENTRY.format("-amount", "kind = 'spend'"),
        _BALANCE.format("spent"),
    ),
    ("entries and balance: held", _ENTRY.format("held", "1 = 1"), _BALANCE.format("held")),
    (
        "credits and balance: granted",
        _CREDIT.format("amount - gone", "state > 0"),
        _BALANCE.format("granted"),
    ),
    ("credits and balance: used", _CREDIT.format("used", "1 = 1"), _BALANCE.format("spent - debt")),
    (
        "credits and balance: held",
        _CREDIT.format("held", "1 = 1"),
        _BALANCE.format("held - debt_held"),
    ),
    (
        "holds and balance: held",
        "SELECT account, meter, sum(remaining) FROM penstock_hold GROUP BY account, meter",
        _BALANCE.format("held"),
    ),
    (
        "entries and sources: settled",
        "SELECT account, source, sum(-amount) FROM penstock_entry"
        f" WHERE {_SETTLED} AND kind IN ('spend', 'uncovered') GROUP BY account, source",
        "SELECT account, id, settled FROM penstock_hold",
    ),
    (
        "entries and sources: held",
        "SELECT account, source, sum(held) FROM penstock_entry"
        f" WHERE kind IN ('hold', 'release', 'spend') AND {_SETTLED} GROUP BY account, source",
        "SELECT account, id, remaining FROM penstock_hold",
    ),
    (
        "sources: granted, and held, settled or returned",
        "SELECT account, id, granted FROM penstock_hold WHERE kind <> 'source'",
        "SELECT account, id, remaining + settled + returned FROM penstock_hold"
        " WHERE kind <> 'source'",
    ),
    (
        "entries and periods: used",
        "SELECT account, meter || ' ' || CAST(period AS TEXT), sum(-amount) FROM penstock_entry"
        " WHERE kind = 'spend' AND period <> 0 GROUP BY account, meter, period",
        "SELECT account, meter || ' ' || CAST(starts AS TEXT), spent FROM penstock_period",
    ),
    (
        "entries and periods: uncovered",
        "SELECT account, meter || ' ' || CAST(period AS TEXT), sum(-amount) FROM penstock_entry"
        " WHERE kind = 'uncovered' AND period <> 0 GROUP BY account, meter, period",
        "SELECT account, meter || ' ' || CAST(starts AS TEXT), uncovered FROM penstock_period",
    ),
    (
        "units that a period used after the next one had begun",
        "SELECT account, meter || ' ' || CAST(period AS TEXT), sum(free) FROM"
        " (SELECT account, meter, period, CASE WHEN kind = 'spend' THEN held - amount ELSE 0 END"
        " AS free, max(CASE WHEN kind = 'grant' THEN period ELSE 0 END)"
        " OVER (PARTITION BY account, meter ORDER BY seq) AS running FROM penstock_entry) AS e"
        " WHERE free > 0 AND period < running AND period <> 0 GROUP BY account, meter, period",
        "SELECT account, meter, 0 FROM penstock_balance",
    ),
    (
        "numbers of entries, without gaps",
        "SELECT '', 'seq', seq FROM penstock_ledger",
        "SELECT '', 'seq', count(*) FROM penstock_entry",
    ),
    (
        "number of the last entry",
        "SELECT '', 'seq', seq FROM penstock_ledger",
        "SELECT '', 'seq', coalesce(max(seq), 0) FROM penstock_entry",
    ),
]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two numbers that should be the same."""

    account: str
    what: str
    check: str
    first: int
    second: int

    def __str__(self) -> str:
        where = f"{self.account!r} {self.what}" if self.account else self.what
        return f"{where}: {self.check}: {self.first:,} and {self.second:,}"


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The result of `reconcile`, true if everything agrees.

    ``stale`` are stocks that should have been settled by now: what they hold stays held until
    their holder comes back, or `write_off`.
    """

    differences: tuple[Difference, ...]
    stale: tuple[OpenHold, ...]
    accounts: int
    entries: int

    def __bool__(self) -> bool:
        return not self.differences


def reconcile(clock: Clock | None) -> Callable[[Snapshot], Reconciliation]:
    def read(snapshot: Snapshot) -> Reconciliation:
        differences = [
            Difference(account, what, check, first.get((account, what), 0), number)
            for check, left, right in COMPARISONS
            for first, second in [(_numbers(snapshot, left), _numbers(snapshot, right))]
            for account, what in sorted(first.keys() | second.keys())
            for number in [second.get((account, what), 0)]
            if first.get((account, what), 0) != number
        ]
        now = moment(clock.now() if clock is not None else snapshot.now())
        holds = open_holds(None)(snapshot)
        stale = [h for h in holds if h.kind == "stock" and h.expires and h.expires <= now]
        counts = [
            int(next(iter(snapshot.query(f"SELECT count(*) FROM {table}")))[0])
            for table in ("penstock_account", "penstock_entry")
        ]
        return Reconciliation(tuple(differences), tuple(stale), *counts)

    return read


def _numbers(snapshot: Snapshot, sql: str) -> dict[tuple[str, str], int]:
    return {(account, what): int(number) for account, what, number in snapshot.query(sql)}
