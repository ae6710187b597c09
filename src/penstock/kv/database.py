"""SQLite files: how they are opened, checked and shared by threads and forked processes."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import StoreFileError, StoreUnavailable
from penstock.sqlite_wal import use_wal

# "PKV" and a version. A file with another one belongs to somebody else.
APPLICATION = 0x504B5601
_BUSY_SECONDS = 5.0
_NOT_OURS = "is a database of another program: name another file"


class Database:
    """One file with a connection that is used by one thread at a time.

    A forked child opens its own connection: those of its parent must not be used.
    """

    def __init__(self, path: str | Path, schema: str, *, synchronous: str) -> None:
        self.path = Path(path)
        self._schema = schema
        self._synchronous = synchronous
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._inherited: list[sqlite3.Connection] = []  # kept, so that they are never closed
        with self.use():
            pass  # so that a wrong file is an error at once

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone. Errors say what is wrong with the file."""
        with self._lock:
            try:
                if self._connection is None or self._process != os.getpid():
                    self._connect()
                assert self._connection is not None
                yield self._connection
            except sqlite3.OperationalError as error:
                raise StoreUnavailable(f"{self.path}: {error}") from None
            except sqlite3.DatabaseError as error:
                raise StoreFileError(f"{self.path} cannot be used: {error}") from None

    @contextmanager
    def transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """All of it or nothing; on disk when it ends, if the file is synchronous."""
        with self.use() as connection:
            connection.execute(f"BEGIN {kind}")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # else SQLite has rolled it back itself
                    connection.execute("ROLLBACK")
                raise

    def _connect(self) -> None:
        if self._connection is not None:
            self._inherited.append(self._connection)
        self._connection = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.OperationalError) as error:
            raise StoreFileError(f"{self.path} cannot be opened: {error}") from None
        try:
            connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
            self._check_owner(connection)
            use_wal(connection)
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            for statement in filter(str.strip, self._schema.split(";")):
                connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        self._connection, self._process = connection, os.getpid()

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")  # both at one moment: another process may be creating it
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        connection.execute("COMMIT")
        if owner != APPLICATION and (owner or tables):
            raise StoreFileError(f"{self.path} {_NOT_OURS}")

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._process == os.getpid():
                connection.close()
