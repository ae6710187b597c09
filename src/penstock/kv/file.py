"""FileBackend: entries in a SQLite file, which all processes of a host may open and watch.

A write is on disk when it is acknowledged (WAL, ``synchronous = FULL``). Readers never wait for
writers. The clock of the host decides what has expired. SQLite's locks do not work on most
network file systems: the file belongs on a local disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from penstock import flows
from penstock.clock import WALL, Clock
from penstock.errors import RevisionConflict
from penstock.kv.backend import Fetched, Flow, Position, Snapshot, T, Written, fetched
from penstock.kv.database import Database
from penstock.kv.memory import MILLISECOND, MOST_BYTES, MOST_WRITES, LocalWakeups
from penstock.kv.record import Record, Write, new_token

# Seconds between two looks whether another process has written: a microsecond of work each.
LOOK = 0.025
_MOST_FETCHED = 500
_MOST_SWEPT = 100

_COLUMNS = "key, revision, token, at, expires, previous, who, why, payload"
_FIELDS = (
    "revision INTEGER NOT NULL, token TEXT NOT NULL, at INTEGER NOT NULL,"
    " expires INTEGER NOT NULL, previous INTEGER NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL"
)
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS entry (key TEXT PRIMARY KEY, {_FIELDS}, payload BLOB) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entry_expires ON entry (expires) WHERE expires > 0;
CREATE TABLE IF NOT EXISTS log
    (key TEXT NOT NULL, {_FIELDS}, payload BLOB, size INTEGER NOT NULL, PRIMARY KEY (revision))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS store
    (id INTEGER PRIMARY KEY CHECK (id = 1), epoch TEXT NOT NULL, revision INTEGER NOT NULL,
     writes INTEGER NOT NULL, bytes INTEGER NOT NULL);
"""
_INSERT_STORE = "INSERT OR IGNORE INTO store VALUES (1, ?, 0, 0, 0)"
_MARKS = "?, ?, ?, ?, ?, ?, ?, ?, ?"


class FileBackend:
    """Thread-safe."""

    direct = True
    poll = 5.0

    def __init__(
        self,
        path: str | Path,
        clock: Clock = WALL,
        *,
        most_writes: int = MOST_WRITES,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.name = f"file {path}"
        self._clock = clock
        self._most_writes = most_writes
        self._most_bytes = most_bytes
        self._writer = Database(path, _SCHEMA, synchronous="FULL")
        self._reader = Database(path, _SCHEMA, synchronous="FULL")
        self._listeners: set[Callable[[], None]] = set()
        with self._writer.transaction() as connection:
            connection.execute(_INSERT_STORE, (new_token(),))

    # Writing ------------------------------------------------------------------------------

    def write(self, write: Write) -> Flow[Written]:
        written: Written = yield lambda: self._write(write)
        return written

    def _write(self, write: Write) -> Written:
        with self._writer.transaction() as connection:
            now = self.now()
            current = _record(connection.execute(_SELECT_ENTRY, (write.key,)).fetchone())
            actual = current.revision if current is not None and current.is_live(now) else 0
            if write.expect is not None and write.expect != actual:
                raise RevisionConflict(write.key, write.expect, actual)
            if not actual and write.payload is None:
                return Written(None, now)
            (revision,) = connection.execute("SELECT revision FROM store").fetchone()
            record = write.record(revision + 1, actual, now)
            if record.payload is None:
                connection.execute("DELETE FROM entry WHERE key = ?", (record.key,))
            else:
                connection.execute(
                    f"INSERT OR REPLACE INTO entry ({_COLUMNS}) VALUES ({_MARKS})", _row(record)
                )
            connection.execute(
                f"INSERT INTO log ({_COLUMNS}, size) VALUES ({_MARKS}, ?)",
                (*_row(record), record.size),
            )
            connection.execute(
                "UPDATE store SET revision = ?, writes = writes + 1, bytes = bytes + ?",
                (record.revision, record.size),
            )
            self._trim(connection, now)
        for listener in list(self._listeners):
            listener()
        return Written(record, now)

    def _trim(self, connection: sqlite3.Connection, now: int) -> None:
        """Forget what has expired, and the oldest writes if there are too many of them."""
        connection.execute(
            "DELETE FROM entry WHERE key IN"
            " (SELECT key FROM entry WHERE expires > 0 AND expires <= ? LIMIT ?)",
            (now, _MOST_SWEPT),
        )
        writes, size = connection.execute("SELECT writes, bytes FROM store").fetchone()
        if writes <= self._most_writes and size <= self._most_bytes:
            return
        last = None
        oldest = connection.execute(
            "SELECT revision, size FROM log ORDER BY revision LIMIT ?", (_MOST_FETCHED,)
        )
        for revision, one in oldest.fetchall():
            if writes <= 1 or (writes <= self._most_writes and size <= self._most_bytes):
                break
            last, writes, size = revision, writes - 1, size - one
        if last is not None:
            connection.execute("DELETE FROM log WHERE revision <= ?", (last,))
            connection.execute("UPDATE store SET writes = ?, bytes = ?", (writes, size))

    # Reading: quick, and never waits for a writer, so it is no step of its own ---------------

    def read(self, key: str) -> Flow[tuple[Record | None, int]]:
        with self._reader.transaction("DEFERRED") as connection:
            (revision,) = connection.execute("SELECT revision FROM store").fetchone()
            record = _record(connection.execute(_SELECT_ENTRY, (key,)).fetchone())
            return record if record is not None and record.is_live(self.now()) else None, revision
        yield

    def fetch(self, position: Position) -> Flow[Fetched]:
        with self._reader.transaction("DEFERRED") as connection:
            epoch, revision = connection.execute("SELECT epoch, revision FROM store").fetchone()
            # With the write at the position itself: is it still the one that was seen?
            records = _records(
                connection.execute(
                    f"SELECT {_COLUMNS} FROM log WHERE revision >= ? ORDER BY revision LIMIT ?",
                    (max(1, position.revision), _MOST_FETCHED),
                )
            )
        return fetched(self.now(), epoch, revision, position, records)
        yield

    def snapshot(self, prefix: str = "") -> Flow[Snapshot]:
        with self._reader.transaction("DEFERRED") as connection:
            now = self.now()
            epoch, revision = connection.execute("SELECT epoch, revision FROM store").fetchone()
            last = connection.execute("SELECT token FROM log WHERE revision = ?", (revision,))
            (token,) = last.fetchone() or ("",)
            where, values = _starts_with(prefix)
            rows = connection.execute(f"SELECT {_COLUMNS} FROM entry WHERE {where}", values)
            records = [record for record in _records(rows) if record.is_live(now)]
        return Snapshot(now, Position(epoch, revision, token), records)
        yield

    def history(self, prefix: str, limit: int, before: int | None) -> Flow[list[Record]]:
        where, values = _starts_with(prefix)
        with self._reader.use() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM log WHERE {where} AND revision < ?"
                " ORDER BY revision DESC LIMIT ?",
                (*values, 2**62 if before is None else before, limit),
            )
            return _records(rows)
        yield

    def now(self) -> int:
        """Milliseconds since 1970."""
        return self._clock.now() // MILLISECOND

    # Running flows --------------------------------------------------------------------------

    def run(self, flow: Flow[T]) -> T:
        return flows.run(flow, lambda step: step())

    async def run_async(self, flow: Flow[T]) -> T:
        return await flows.run_async(flow, asyncio.to_thread)

    def wakeups(self) -> FileWakeups:
        return FileWakeups(self._listeners, self._reader.path)

    def close(self) -> None:
        self._writer.close()
        self._reader.close()

    async def aclose(self) -> None:
        self.close()


class FileWakeups(LocalWakeups):
    """Wakes a follower when this process or another one has written to the file."""

    def __init__(self, listeners: set[Callable[[], None]], path: Path) -> None:
        super().__init__(listeners)
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._version = -1

    async def open(self) -> None:
        await super().open()
        self._connection = sqlite3.connect(self._path, isolation_level=None)
        self._version = self._data_version()

    def _data_version(self) -> int:
        """Changes with every transaction of another connection."""
        assert self._connection is not None
        with closing(self._connection.execute("PRAGMA data_version")) as cursor:
            version: int = cursor.fetchone()[0]
        return version

    async def wait(self, seconds: float) -> bool:
        end = asyncio.get_running_loop().time() + seconds
        while True:
            left = end - asyncio.get_running_loop().time()
            woken = await super().wait(min(LOOK, max(0.0, left)))
            version = self._data_version()
            changed, self._version = version != self._version, version
            if woken or changed:
                return True
            if left <= 0:
                return False

    async def close(self) -> None:
        await super().close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_SELECT_ENTRY = f"SELECT {_COLUMNS} FROM entry WHERE key = ?"


def _row(record: Record) -> tuple[Any, ...]:
    return (
        record.key, record.revision, record.token, record.at, record.expires, record.previous,
        record.who, record.why, record.payload,
    )  # fmt: skip


def _record(row: tuple[Any, ...] | None) -> Record | None:
    return None if row is None else Record(*row)


def _records(rows: Iterable[tuple[Any, ...]]) -> list[Record]:
    return [Record(*row) for row in rows]


def _starts_with(prefix: str) -> tuple[str, tuple[str, str]]:
    """A condition that the index of keys answers. No key has a character as high as the last."""
    return "key >= ? AND key < ?", (prefix, prefix + "\U0010ffff")
