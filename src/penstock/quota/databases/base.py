"""What a database does for a ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.quota.rows import AccountRow, BalanceRow, CreditRow, EntryRow, HoldRow, PeriodRow


class Conflict(Exception):
    """Another writer was faster, or a constraint refused the rows. Nothing was written."""


class Interrupted(Exception):
    """The connection was lost: what was being written may have been written or not."""


@dataclass(slots=True)
class Wanted:
    """What operations need to be loaded."""

    accounts: set[str] = field(default_factory=set)
    # Accounts with ids of holds, with refs of credits, and with the ``idem`` of entries.
    holds: set[tuple[str, str]] = field(default_factory=set)
    refs: set[tuple[str, str]] = field(default_factory=set)
    idems: set[tuple[str, str]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.accounts or self.holds or self.refs or self.idems)


@dataclass(slots=True)
class Loaded:
    """The rows that were found."""

    accounts: list[AccountRow]
    balances: list[BalanceRow]
    credits: list[CreditRow]
    periods: list[PeriodRow]
    holds: list[HoldRow]
    entries: list[EntryRow]
    refs: list[CreditRow]


@dataclass(slots=True)
class Changes:
    """Rows to insert and rows to update, as tuples, by table name; and entries to append.

    In those to update, the key comes last. Of ``hot_updates``, only the hot columns have changed,
    and are there.
    """

    inserts: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    updates: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    hot_updates: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    entries: list[EntryRow] = field(default_factory=list)
    plans: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.inserts or self.updates or self.hot_updates or self.entries or self.plans)


class Snapshot(Protocol):
    """The ledger at one moment, to read from. ``?`` stands for a parameter."""

    def now(self) -> int: ...

    def query(self, sql: str, *parameters: Any) -> Iterator[Sequence[Any]]:
        """The rows, read as they are used."""

    def load(self, wanted: Wanted) -> Loaded: ...

    def plans(self) -> dict[str, str]: ...

    def expiring(self, accounts: Sequence[str], now: int) -> Expiring: ...


@dataclass(slots=True)
class Expiring:
    """Reservations that have expired, and when the next one of each account does."""

    holds: list[HoldRow]
    periods: list[PeriodRow]
    next: dict[str, int]


@dataclass(slots=True)
class State:
    """When a transaction began, and a value that changes when another writer has written."""

    now: int
    version: object


class Transaction(Snapshot, Protocol):
    """The same while nobody else writes."""

    def begin(self) -> State:
        """Called first."""

    def save(self, changes: Changes) -> object:
        """Write everything; sets ``seq`` of the entries. Returns the new ``State.version``."""


class Database(Protocol):
    """One database. `writing` and `reading` are used by one thread each.

    ``until`` is when to give up, by `time.monotonic`.
    """

    @property
    def name(self) -> str:
        """Where it is, without secrets."""

    def writing(self, until: float) -> AbstractContextManager[Transaction]:
        """A transaction: committed at the end of the block, undone if it raises.

        Connects, and brings the tables up to date, when it is first used. Raises `Conflict` or
        `Interrupted`, `LedgerUnavailable` if there is no connection, and `LedgerVersion`.
        """

    def reading(self, until: float) -> AbstractContextManager[Snapshot]:
        """The ledger at one moment."""

    def close_writer(self) -> None:
        """Called by the thread that writes."""

    def close_reader(self) -> None:
        """Called by the thread that reads."""

    def after_fork(self) -> None:
        """Forget the connections, without closing them: they are the parent's."""
