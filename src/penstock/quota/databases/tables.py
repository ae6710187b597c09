"""The tables: which row is kept in which, and how a row becomes a tuple."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

from penstock.quota.rows import AccountRow, BalanceRow, CreditRow, EntryRow, HoldRow, PeriodRow

Row = TypeVar("Row")
# Of credits that callers have named.
NAMED = "t.kind IN ('top-up', 'promo')"
# Of entries that have a name.
WITH_IDEM = "t.idem <> ''"
# Bumped by every migration.
VERSION = 2


@dataclass(frozen=True)
class Table(Generic[Row]):
    """``key`` is the number of columns, from the first, that identify a row.

    ``hot`` are those that change with every operation, and are in no index: where they begin, and
    where the others go on. Mostly they alone are written.
    """

    name: str
    row: type[Row]
    key: int
    hot: tuple[int, int]
    columns: tuple[str, ...]
    # By column: "text" or "bigint".
    types: tuple[str, ...]
    as_tuple: Callable[[Row], tuple[Any, ...]]

    def from_tuple(self, values: Sequence[Any]) -> Row:
        return self.row(*values)

    @property
    def select(self) -> str:
        return ", ".join(f"t.{column}" for column in self.columns)


class _HoldTable(Table[HoldRow]):
    """The parts of a hold are JSON."""

    def from_tuple(self, values: Sequence[Any]) -> HoldRow:
        row = HoldRow(*values)
        row.parts = json.loads(row.parts)  # type: ignore[arg-type]  # text, as it was loaded
        return row


def _hold_as_tuple(row: HoldRow) -> tuple[Any, ...]:
    parts = ",".join([f"[{number},{units}]" for number, units in row.parts])
    return *_HOLD_FIRST(row), f"[{parts}]", *_HOLD_REST(row)


def _columns(row: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(row) if field.init)


def _types(row: type) -> tuple[str, ...]:
    return tuple("bigint" if field.type == "int" else "text" for field in fields(row) if field.init)


def _table(name: str, row: type[Row], key: int, first: str = "", last: str = "") -> Table[Row]:
    columns = _columns(row)
    hot = (columns.index(first), columns.index(last) + 1) if first else (0, 0)
    return Table(name, row, key, hot, columns, _types(row), attrgetter(*columns))


_HOLD_COLUMNS = _columns(HoldRow)
_PARTS = _HOLD_COLUMNS.index("parts")
_HOLD_FIRST = attrgetter(*_HOLD_COLUMNS[:_PARTS])
_HOLD_REST = attrgetter(*_HOLD_COLUMNS[_PARTS + 1 :])

ACCOUNT = _table("penstock_account", AccountRow, 1)
BALANCE = _table("penstock_balance", BalanceRow, 2, "granted", "held")
CREDIT = _table("penstock_credit", CreditRow, 2, "used", "gone")
PERIOD = _table("penstock_period", PeriodRow, 3, "spent", "uncovered")
ENTRY = _table("penstock_entry", EntryRow, 0)
HOLD: Table[HoldRow] = _HoldTable(
    "penstock_hold",
    HoldRow,
    2,
    (_HOLD_COLUMNS.index("granted"), _PARTS + 1),
    _HOLD_COLUMNS,
    _types(HoldRow),
    _hold_as_tuple,
)
