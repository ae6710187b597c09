"""SQLite, from the standard library.

One connection writes, another one reads. Write-ahead log with ``synchronous=FULL``: what was
committed is on the disk. ``BEGIN IMMEDIATE`` takes the lock of the file before anything is read,
so several processes may use one file.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.quota.databases import tables
from penstock.quota.databases.base import Changes, Conflict, Expiring, Loaded, State, Wanted
from penstock.quota.databases.migrations import SQLITE, missing
from penstock.quota.databases.tables import (
    ACCOUNT,
    BALANCE,
    CREDIT,
    ENTRY,
    HOLD,
    NAMED,
    PERIOD,
    WITH_IDEM,
    Table,
)
from penstock.quota.errors import LedgerUnavailable, LedgerVersion
from penstock.quota.rows import PeriodRow
from penstock.sqlite_wal import use_wal

_IN = "IN (SELECT value FROM json_each(?))"
_PAIRS = (
    "(SELECT json_extract(value, '$[0]') AS account, json_extract(value, '$[1]') AS name"
    " FROM json_each(?)) AS w"
)
_RESERVATIONS = f"{HOLD.name} AS t WHERE t.open = 1 AND t.kind = 'reservation' AND t.account {_IN}"


class SQLiteDatabase:
    """A ledger in a file. ``deadline`` is how long to wait for another process that writes."""

    def __init__(self, path: str, deadline: float) -> None:
        self.path = path
        self._deadline = deadline
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None

    @property
    def name(self) -> str:
        return f"sqlite:///{self.path}"

    @contextmanager
    def writing(self, until: float) -> Iterator[SQLiteTransaction]:
        if self._writer is None:
            self._writer = self._connect()
        connection = self._writer
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield SQLiteTransaction(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.IntegrityError as error:
            raise Conflict(str(error)) from error
        except sqlite3.Error as error:
            self.close_writer()
            raise LedgerUnavailable(f"{self.name}: {error}") from error

    @contextmanager
    def reading(self, until: float) -> Iterator[SQLiteTransaction]:
        if self._reader is None:
            self._reader = self._connect()
        connection = self._reader
        try:
            connection.execute("BEGIN")
            try:
                yield SQLiteTransaction(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self.close_reader()
            raise LedgerUnavailable(f"{self.name}: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        connection = None
        try:
            connection = sqlite3.connect(
                self.path, timeout=self._deadline, isolation_level=None, check_same_thread=False
            )
            missing(self._version(connection), SQLITE, self.name)  # before anything is changed
            use_wal(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA cache_size = -65536")
            # Every 64 MB. Writers wait for a checkpoint, so there is less than one in a hundred
            # commits, also of large groups.
            connection.execute("PRAGMA wal_autocheckpoint = 16384")
            self._migrate(connection)
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.DatabaseError) and "not a database" in str(error):
                raise LedgerVersion(
                    f"{self.path} is not a SQLite database: it was left untouched"
                ) from error
            folder = Path(self.path).parent
            hint = "" if folder.is_dir() else f"; there is no folder {folder}"
            raise LedgerUnavailable(f"{self.name}: {error}{hint}") from error
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        return connection

    def _version(self, connection: sqlite3.Connection) -> int | None:
        known = connection.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'penstock_schema'"
        ).fetchone()
        if known is None:
            return None
        row = connection.execute("SELECT max(version) FROM penstock_schema").fetchone()
        return int(row[0] or 0)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if not missing(self._version(connection), SQLITE, self.name):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in missing(self._version(connection), SQLITE, self.name):
                connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def close_writer(self) -> None:
        connection, self._writer = self._writer, None
        if connection is not None:
            connection.close()

    def close_reader(self) -> None:
        connection, self._reader = self._reader, None
        if connection is not None:
            connection.close()

    def after_fork(self) -> None:
        # Closing them would release the parent's locks on the file; so would collecting them.
        _inherited.append((self._writer, self._reader))
        self._writer = self._reader = None


_inherited: list[tuple[sqlite3.Connection | None, sqlite3.Connection | None]] = []


class SQLiteTransaction:
    """See `base.Transaction`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version = 0

    def now(self) -> int:
        return time.time_ns()

    def begin(self) -> State:
        # Of this connection: it changes when another one has committed.
        self._version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return State(self.now(), (id(self._connection), self._version))

    def query(self, sql: str, *parameters: Any) -> Iterator[Sequence[Any]]:
        return iter(self._connection.execute(sql, parameters))

    def load(self, wanted: Wanted) -> Loaded:
        accounts = json.dumps(list(wanted.accounts))
        return Loaded(
            self._rows(ACCOUNT, f"t.id {_IN}", accounts),
            self._rows(BALANCE, f"t.account {_IN}", accounts),
            self._rows(CREDIT, f"t.state < 3 AND t.account {_IN}", accounts),
            self._rows(PERIOD, f"t.ended = 0 AND t.account {_IN}", accounts)
            + self._periods_of_pairs(wanted.holds),
            self._pairs(HOLD, "id", wanted.holds),
            self._pairs(ENTRY, "idem", wanted.idems, WITH_IDEM),
            self._pairs(CREDIT, "ref", wanted.refs, NAMED),
        )

    def plans(self) -> dict[str, str]:
        return dict(self._connection.execute("SELECT name, definition FROM penstock_plan"))

    def expiring(self, accounts: Sequence[str], now: int) -> Expiring:
        names = json.dumps(list(accounts))
        expired = (
            f"(SELECT * FROM {HOLD.name} AS t WHERE t.open = 1 AND t.kind = 'reservation'"
            f" AND t.account {_IN} AND t.expires <= ?) AS h"
        )
        return Expiring(
            self._rows(
                HOLD,
                f"t.open = 1 AND t.kind = 'reservation' AND t.account {_IN} AND t.expires <= ?",
                names,
                now,
            ),
            self._periods_of(expired, names, now),
            dict(
                self._connection.execute(
                    f"SELECT t.account, min(t.expires) FROM {_RESERVATIONS} AND t.expires > ?"
                    " GROUP BY t.account",
                    (names, now),
                )
            ),
        )

    def save(self, changes: Changes) -> object:
        run = self._connection.executemany
        if changes.plans:
            run(
                "INSERT INTO penstock_plan VALUES (?, ?) ON CONFLICT (name) DO UPDATE"
                " SET definition = excluded.definition",
                changes.plans.items(),
            )
        for table in _CHANGED:
            if table.name in changes.hot_updates:
                run(_HOT_UPDATES[table.name], changes.hot_updates[table.name])
            if table.name in changes.updates:
                run(_UPDATES[table.name], changes.updates[table.name])
            if table.name in changes.inserts:
                run(_INSERTS[table.name], changes.inserts[table.name])
        if changes.entries:
            query = "SELECT seq FROM penstock_ledger"
            seq = int(self._connection.execute(query).fetchone()[0])
            for entry in changes.entries:
                seq += 1
                entry.seq = seq
            run(_INSERTS[ENTRY.name], map(ENTRY.as_tuple, changes.entries))
            self._connection.execute("UPDATE penstock_ledger SET seq = ?", (seq,))
        return id(self._connection), self._version

    def _rows(self, table: Table[tables.Row], where: str, *parameters: Any) -> list[tables.Row]:
        sql = f"SELECT {table.select} FROM {table.name} AS t WHERE {where}"
        return [table.from_tuple(row) for row in self._connection.execute(sql, parameters)]

    def _pairs(
        self,
        table: Table[tables.Row],
        column: str,
        pairs: set[tuple[str, str]],
        where: str = "true",
    ) -> list[tables.Row]:
        if not pairs:
            return []
        sql = (
            f"SELECT {table.select} FROM {_PAIRS} CROSS JOIN {table.name} AS t"
            f" ON t.account = w.account AND t.{column} = w.name AND {where}"
        )
        rows = self._connection.execute(sql, (json.dumps(list(pairs)),))
        return [table.from_tuple(row) for row in rows]

    def _periods_of_pairs(self, pairs: set[tuple[str, str]]) -> list[PeriodRow]:
        if not pairs:
            return []
        held = f"{_PAIRS} CROSS JOIN {HOLD.name} AS h ON h.account = w.account AND h.id = w.name"
        return self._periods_of(held, json.dumps(list(pairs)))

    def _periods_of(self, holds: str, *parameters: Any) -> list[PeriodRow]:
        """Periods that have ended, in which holds began."""
        sql = (
            f"SELECT DISTINCT {PERIOD.select} FROM {holds} CROSS JOIN {PERIOD.name} AS t"
            " ON t.account = h.account AND t.meter = h.meter AND t.starts = h.period"
            " WHERE t.ended = 1"
        )
        return [PERIOD.from_tuple(row) for row in self._connection.execute(sql, parameters)]


def _insert(table: Table[Any]) -> str:
    marks = ", ".join("?" * len(table.columns))
    return f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})"


def _update(table: Table[Any], columns: Sequence[str]) -> str:
    values = ", ".join(f"{column} = ?" for column in columns)
    where = " AND ".join(f"{column} = ?" for column in table.columns[: table.key])
    return f"UPDATE {table.name} SET {values} WHERE {where}"


_CHANGED = (ACCOUNT, BALANCE, CREDIT, PERIOD, HOLD)
_INSERTS = {table.name: _insert(table) for table in (*_CHANGED, ENTRY)}
_UPDATES = {table.name: _update(table, table.columns[table.key :]) for table in _CHANGED}
_HOT_UPDATES = {table.name: _update(table, table.columns[slice(*table.hot)]) for table in _CHANGED}
