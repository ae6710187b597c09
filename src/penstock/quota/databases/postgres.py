"""PostgreSQL, through psycopg 3: the extra ``penstock[postgres]``.

A transaction locks the one row of ``penstock_ledger``, then reads, then writes with one statement
for each table. So writers come one after another, entries are numbered without gaps and become
visible in their order, and a writer knows by a counter whether anybody else has written since.
What does not depend on an answer is sent in one go.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from penstock.quota.databases import tables
from penstock.quota.databases.base import (
    Changes,
    Conflict,
    Expiring,
    Interrupted,
    Loaded,
    State,
    Wanted,
)
from penstock.quota.databases.migrations import POSTGRES, missing
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
from penstock.quota.errors import LedgerUnavailable
from penstock.quota.rows import HoldRow, PeriodRow

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"a ledger in PostgreSQL needs {error.name}: pip install 'penstock[postgres]'",
        name=error.name,
    ) from None

Result = TypeVar("Result")
# Any number that other programs do not lock.
_MIGRATING = 0x50_E5_70_C4
# Seconds that a migration may take.
_MIGRATION_LASTS = 3600.0
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"
_EXPIRED = "t.open = 1 AND t.kind = 'reservation' AND t.account = ANY(%s)"
_PERIODS = (
    f"SELECT DISTINCT {PERIOD.select} FROM {{holds}} JOIN {PERIOD.name} AS t"
    " ON t.account = h.account AND t.meter = h.meter AND t.starts = h.period WHERE t.ended = 1"
)
_PAIRS = "unnest(%s::text[], %s::text[]) AS w(account, name)"
_HELD = f"{_PAIRS} JOIN {HOLD.name} AS h ON h.account = w.account AND h.id = w.name"
_HELD_EXPIRED = f"(SELECT * FROM {HOLD.name} AS t WHERE {_EXPIRED} AND t.expires <= %s) AS h"


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """Gives up at ``until``, by `time.monotonic`.

    A server that has stopped, or a network that has swallowed an answer, says nothing at all, and
    the time-outs of the server and of TCP do not help.
    """

    until = math.inf

    def wait(self, gen: Generator[Any, Any, Result], *args: Any, **options: Any) -> Result:
        return super().wait(self._limited(gen), *args, **options)

    def _limited(self, gen: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
        """The same generator. Every 0.1 s in which nothing has come, psycopg sends it 0."""
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() >= self.until:
                    self.pgconn.finish()  # what comes later is not the answer to anything
                    raise psycopg.OperationalError("the server did not answer in time")
                wanted = gen.send(ready)
        except StopIteration as done:
            result: Result = done.value
            return result


class PostgresDatabase:
    """A ledger in a database of a PostgreSQL server."""

    def __init__(self, url: str, deadline: float) -> None:
        self._url = url
        self._deadline = deadline
        parts = conninfo_to_dict(url)
        host, port = parts.get("host", "localhost"), parts.get("port", "5432")
        self._name = f"postgresql://{host}:{port}/{parts.get('dbname', '')}"
        self._writer: Connection | None = None
        self._reader: Connection | None = None
        self._inherited: list[Connection | None] = []

    @property
    def name(self) -> str:
        return self._name

    @contextmanager
    def writing(self, until: float) -> Iterator[PostgresTransaction]:
        if self._writer is None or self._writer.closed:
            self._writer = self._connect(until, self._deadline)
        connection = self._writer
        connection.until = until
        try:
            with connection.transaction():
                yield PostgresTransaction(connection)
        except (errors.IntegrityError, errors.DeadlockDetected, errors.SerializationFailure) as e:
            raise Conflict(str(e)) from e
        except psycopg.Error as error:
            self._fail(connection, error)

    @contextmanager
    def reading(self, until: float) -> Iterator[PostgresTransaction]:
        if self._reader is None or self._reader.closed:
            self._reader = self._connect(until, 0)
            self._reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection = self._reader
        connection.until = until
        try:
            with connection.transaction(force_rollback=True):
                yield PostgresTransaction(connection)
        except psycopg.Error as error:
            self._fail(connection, error)

    def _fail(self, connection: Connection, error: psycopg.Error) -> NoReturn:
        lost = connection.closed or isinstance(error, psycopg.OperationalError)
        connection.close()
        if lost:
            raise Interrupted(f"{self.name}: {_line(error)}") from error
        raise LedgerUnavailable(f"{self.name}: {_line(error)}") from error

    def _connect(self, until: float, statement: float) -> Connection:
        """``statement`` is how many seconds the server may work on one, 0 for any time."""
        half = max(1, math.ceil(self._deadline * 500))  # milliseconds
        try:
            connection = Connection.connect(
                self._url,
                autocommit=True,
                connect_timeout=max(1, math.ceil(until - time.monotonic())),  # libpq's least is 2
                # A host that is gone is noticed while there is time to find another one.
                tcp_user_timeout=half,
                application_name="penstock",
            )
        except psycopg.Error as error:
            raise LedgerUnavailable(f"{self.name}: {_line(error)}") from error
        try:
            connection.until = until
            self._migrate(connection)
            connection.until = max(until, time.monotonic() + self._deadline)
            # A writer that hangs must not stop the others for ever, and a statement that nobody
            # waits for any more ends.
            connection.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', %s, false),"
                " set_config('statement_timeout', %s, false)",
                (f"{half}ms", f"{math.ceil(statement * 1000)}ms"),
            )
        except psycopg.Error as error:
            connection.close()
            raise LedgerUnavailable(f"{self.name}: {_line(error)}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: Connection) -> None:
        if not missing(_version(connection), POSTGRES, self.name):
            return
        connection.until = time.monotonic() + _MIGRATION_LASTS
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
            for statement in missing(_version(connection), POSTGRES, self.name):
                connection.execute(statement.encode())

    def close_writer(self) -> None:
        connection, self._writer = self._writer, None
        if connection is not None:
            connection.close()

    def close_reader(self) -> None:
        connection, self._reader = self._reader, None
        if connection is not None:
            connection.close()

    def after_fork(self) -> None:
        # Closing them would end the parent's sessions.
        self._inherited += [self._writer, self._reader]
        self._writer = self._reader = None


def _version(connection: Connection) -> int | None:
    # Not to_regclass: it may not see a table that was created while we waited for the lock.
    row = connection.execute(
        "SELECT 1 FROM pg_catalog.pg_tables WHERE tablename = 'penstock_schema'"
        " AND schemaname = ANY(current_schemas(false))"
    ).fetchone()
    if row is None:
        return None
    row = connection.execute("SELECT max(version) FROM penstock_schema").fetchone()
    return int(row[0] or 0) if row is not None else 0


def _line(error: Exception) -> str:
    """The first line of a message."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


class PostgresTransaction:
    """See `base.Transaction`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._changes = 0

    def now(self) -> int:
        row = self._connection.execute(_NOW).fetchone()
        assert row is not None
        return int(row[0])

    def begin(self) -> State:
        """Locks the ledger: writers come one after another."""
        with self._connection.pipeline():
            locked = self._run("SELECT changes FROM penstock_ledger FOR UPDATE")
            clock = self._run(_NOW)
        row, time = locked.fetchone(), clock.fetchone()
        assert row is not None
        assert time is not None
        self._changes = int(row[0])
        return State(int(time[0]), self._changes)

    def query(self, sql: str, *parameters: Any) -> Iterator[Sequence[Any]]:
        # From the server in parts: an export may be longer than the memory.
        with self._connection.cursor(name="penstock") as cursor:
            cursor.itersize = 5000
            cursor.execute(sql.replace("?", "%s").encode(), parameters)
            yield from cursor

    def load(self, wanted: Wanted) -> Loaded:
        accounts = sorted(wanted.accounts)
        with self._connection.pipeline():
            loading = [
                self._select(ACCOUNT, "t.id = ANY(%s)", accounts),
                self._select(BALANCE, "t.account = ANY(%s)", accounts),
                self._select(CREDIT, "t.state < 3 AND t.account = ANY(%s)", accounts),
                self._select(PERIOD, "t.ended = 0 AND t.account = ANY(%s)", accounts),
                self._pairs(HOLD, "id", wanted.holds),
                self._run(_PERIODS.format(holds=_HELD), *_columns(wanted.holds))
                if wanted.holds
                else None,
                self._pairs(ENTRY, "idem", wanted.idems, WITH_IDEM),
                self._pairs(CREDIT, "ref", wanted.refs, NAMED),
            ]
        account, balance, credit, period, hold, past, entry, ref = loading
        return Loaded(
            _rows(ACCOUNT, account),
            _rows(BALANCE, balance),
            _rows(CREDIT, credit),
            _rows(PERIOD, period) + _rows(PERIOD, past),
            _rows(HOLD, hold),
            _rows(ENTRY, entry),
            _rows(CREDIT, ref),
        )

    def plans(self) -> dict[str, str]:
        rows = self._connection.execute("SELECT name, definition FROM penstock_plan")
        return dict(rows.fetchall())

    def expiring(self, accounts: Sequence[str], now: int) -> Expiring:
        names = list(accounts)
        holds: list[HoldRow] = _rows(
            HOLD, self._select(HOLD, f"{_EXPIRED} AND t.expires <= %s", names, now)
        )
        past: list[PeriodRow] = _rows(
            PERIOD, self._run(_PERIODS.format(holds=_HELD_EXPIRED), names, now)
        )
        following = self._run(
            f"SELECT t.account, min(t.expires) FROM {HOLD.name} AS t WHERE {_EXPIRED}"
            " AND t.expires > %s GROUP BY t.account",
            names,
            now,
        )
        return Expiring(holds, past, {account: int(expires) for account, expires in following})

    def save(self, changes: Changes) -> object:
        numbered = None
        with self._connection.pipeline():
            if changes.plans:
                self._run(
                    "INSERT INTO penstock_plan SELECT * FROM unnest(%s::text[], %s::text[])"
                    " ON CONFLICT (name) DO UPDATE SET definition = excluded.definition",
                    list(changes.plans),
                    list(changes.plans.values()),
                )
            for table in _CHANGED:
                if table.name in changes.hot_updates:
                    self._run_all(_HOT_UPDATES[table.name], changes.hot_updates[table.name])
                if table.name in changes.updates:
                    self._run_all(_UPDATES[table.name], changes.updates[table.name])
                if table.name in changes.inserts:
                    self._run_all(_INSERTS[table.name], changes.inserts[table.name])
            if changes.entries:
                count = len(changes.entries)
                values = [ENTRY.as_tuple(entry)[:-1] for entry in changes.entries]
                numbered = self._run_all(_APPEND, values, count, count)
            else:
                self._run("UPDATE penstock_ledger SET changes = changes + 1")
        if numbered is not None:
            row = numbered.fetchone()
            assert row is not None
            for number, entry in enumerate(changes.entries, int(row[0])):
                entry.seq = number
        self._changes += 1
        return self._changes

    def _run(self, sql: str, *parameters: Any) -> psycopg.Cursor[tuple[Any, ...]]:
        return self._connection.execute(sql.encode(), parameters)

    def _run_all(
        self, sql: str, rows: Sequence[tuple[Any, ...]], *first: Any
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """With an array for each column of the rows."""
        return self._run(sql, *first, *_columns(rows))

    def _select(
        self, table: Table[Any], where: str, *parameters: Any
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        sql = f"SELECT {table.select} FROM {table.name} AS t WHERE {where}"
        return self._run(sql, *parameters)

    def _pairs(
        self, table: Table[Any], column: str, pairs: set[tuple[str, str]], where: str = "true"
    ) -> psycopg.Cursor[tuple[Any, ...]] | None:
        if not pairs:
            return None
        sql = (
            f"SELECT {table.select} FROM {_PAIRS} JOIN {table.name} AS t"
            f" ON t.account = w.account AND t.{column} = w.name AND {where}"
        )
        return self._run(sql, *_columns(pairs))


def _rows(
    table: Table[tables.Row], cursor: psycopg.Cursor[tuple[Any, ...]] | None
) -> list[tables.Row]:
    return [] if cursor is None else [table.from_tuple(row) for row in cursor]


def _columns(rows: Any) -> list[str]:
    """An array for each column, as PostgreSQL writes it: psycopg takes several times as long."""
    return [_array(column) for column in zip(*rows, strict=True)]


def _array(column: tuple[Any, ...]) -> str:
    if type(column[0]) is int:
        return f"{{{','.join(map(str, column))}}}"
    return f"{{{','.join(map(_element, column))}}}"


def _element(text: str | None) -> str:
    if text is None:
        return "NULL"
    if '"' in text or "\\" in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _arrays(types: Sequence[str]) -> str:
    return ", ".join(f"%s::{kind}[]" for kind in types)


def _insert(table: Table[Any]) -> str:
    columns = ", ".join(table.columns)
    return f"INSERT INTO {table.name} ({columns}) SELECT * FROM unnest({_arrays(table.types)})"


def _update(table: Table[Any], first: int, rest: int) -> str:
    columns = (*table.columns[first:rest], *table.columns[: table.key])
    types = (*table.types[first:rest], *table.types[: table.key])
    values = ", ".join(f"{column} = v.{column}" for column in table.columns[first:rest])
    where = " AND ".join(f"t.{column} = v.{column}" for column in table.columns[: table.key])
    return (
        f"UPDATE {table.name} AS t SET {values} FROM unnest({_arrays(types)})"
        f" AS v({', '.join(columns)}) WHERE {where}"
    )


_CHANGED: tuple[Table[Any], ...] = (ACCOUNT, BALANCE, CREDIT, PERIOD, HOLD)
_INSERTS = {table.name: _insert(table) for table in _CHANGED}
_UPDATES = {table.name: _update(table, table.key, len(table.columns)) for table in _CHANGED}
_HOT_UPDATES = {table.name: _update(table, *table.hot) for table in _CHANGED}
_ENTRY_COLUMNS = ENTRY.columns[:-1]
_APPEND = (
    "WITH ledger AS (UPDATE penstock_ledger SET seq = seq + %s, changes = changes + 1"
    " RETURNING seq - %s AS base),"
    f" entries AS (INSERT INTO {ENTRY.name} ({', '.join(_ENTRY_COLUMNS)}, seq)"
    f" SELECT {', '.join(f'v.{column}' for column in _ENTRY_COLUMNS)}, ledger.base + v.number"
    f" FROM ledger, unnest({_arrays(ENTRY.types[:-1])}) WITH ORDINALITY"
    f" AS v({', '.join(_ENTRY_COLUMNS)}, number))"
    " SELECT base + 1 FROM ledger"
)
assert ENTRY.columns[-1] == "seq"
