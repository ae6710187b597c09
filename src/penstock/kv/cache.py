"""DiskCache: what a process knew of a store, on its own disk.

A process that starts while the store is away serves what the disk has. It also holds the values
that are not in memory. It is only a cache: what was acknowledged is in the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.clock import WALL, Clock
from penstock.kv.backend import Position
from penstock.kv.database import Database
from penstock.kv.memory import MILLISECOND
from penstock.kv.record import Record

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cached
    (key TEXT PRIMARY KEY, revision INTEGER NOT NULL, token TEXT NOT NULL, at INTEGER NOT NULL,
     expires INTEGER NOT NULL, previous INTEGER NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL,
     payload BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS synced
    (id INTEGER PRIMARY KEY CHECK (id = 1), store TEXT NOT NULL, epoch TEXT NOT NULL,
     revision INTEGER NOT NULL, token TEXT NOT NULL, at INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Cached:
    """``age`` is for how many seconds the store had not been heard from, by the wall clock."""

    records: Sequence[Record]
    position: Position
    age: float


class DiskCache:
    """``store`` names the store: a cache of another one is not used."""

    def __init__(self, path: str | Path, store: str, clock: Clock = WALL) -> None:
        self._database = Database(path, _SCHEMA, synchronous="NORMAL")
        self._store = store
        self._clock = clock

    def load(self) -> Cached | None:
        with self._database.transaction("DEFERRED") as connection:
            row = connection.execute(
                "SELECT store, epoch, revision, token, at FROM synced"
            ).fetchone()
            if row is None or row[0] != self._store:
                return None
            rows = connection.execute(
                "SELECT key, revision, token, at, expires, previous, who, why, payload FROM cached"
            )
            records = [Record(*each) for each in rows]
        _, epoch, revision, token, at = row
        age = max(0, self._clock.now() // MILLISECOND - at) / 1000
        return Cached(records, Position(epoch, revision, token), age)

    def save(
        self, before: Position, records: Sequence[Record], position: Position, whole: bool
    ) -> bool:
        """Write what has changed since ``before``, or everything if it is ``whole``.

        Returns False, and writes nothing, if another process has written here since.
        """
        with self._database.transaction() as connection:
            if whole:
                connection.execute("DELETE FROM cached")
            else:
                row = connection.execute(
                    "SELECT epoch, revision, token FROM synced WHERE store = ?", (self._store,)
                ).fetchone()
                if row is None or Position(*row) != before:
                    return False
            for record in records:
                if record.payload is None:
                    connection.execute("DELETE FROM cached WHERE key = ?", (record.key,))
                else:
                    connection.execute(
                        "INSERT OR REPLACE INTO cached VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        (
                            record.key, record.revision, record.token, record.at, record.expires,
                            record.previous, record.who, record.why, record.payload,
                        ),
                    )  # fmt: skip
            connection.execute(
                "INSERT OR REPLACE INTO synced VALUES (1, ?, ?, ?, ?, ?)",
                (
                    self._store, position.epoch, position.revision, position.token,
                    self._clock.now() // MILLISECOND,
                ),
            )  # fmt: skip
            return True

    def payload(self, key: str, revision: int) -> bytes | None:
        """The value of this revision; None if another one is there."""
        with self._database.use() as connection:
            row = connection.execute(
                "SELECT payload FROM cached WHERE key = ? AND revision = ?", (key, revision)
            ).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        self._database.close()
