"""FileBank: accounts in a file, for the workers of one host. SQLite locks it and survives kills.

Rejected: a lock and a file of our own, which a process that is killed while it writes would leave
half written; and the shared store's table, whose rows are too small for a fleet of Envoys.

Envoys that were assigned something before the file was created are unknown: see `MemoryBank`. A
file that was there before knows them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.clock import Clock
from penstock.durations import MILLISECOND
from penstock.errors import StoreUnavailable
from penstock.service.rlqs.account import Account, Reply
from penstock.service.rlqs.bank import Entry
from penstock.service.rlqs.packing import pack_account, unpack_account
from penstock.service.rlqs.shares import SLACK, TTL
from penstock.sqlite_wal import use_wal
from penstock.stores.leased.boottime import BOOT

_TABLES = """
CREATE TABLE IF NOT EXISTS account (key TEXT PRIMARY KEY, expiry INTEGER, value BLOB) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_expiry ON account (expiry);
CREATE TABLE IF NOT EXISTS opens (at INTEGER);
"""
_BUSY = 0.5  # seconds to wait for other workers
_VERSION = 1
_SWEEP = 60_000


class FileBank:
    """Created and used within one event loop; calls to the file are made in threads.

    ``clock`` must be the same for all processes, as that of the boot time is. After a restart of
    the machine it begins anew, which accounts take for a clock that was set back.
    """

    def __init__(self, path: str | os.PathLike[str], clock: Clock = BOOT) -> None:
        self._path = Path(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._swept = 0
        try:
            self._file = sqlite3.connect(
                self._path, timeout=_BUSY, isolation_level=None, check_same_thread=False
            )
            self._opens = self._prepare()
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the file of quotas {self._path}: {error}") from None

    def _prepare(self) -> int:
        """Create the tables if the file is new; the time from which on it can answer."""
        file, now = self._file, self._now()
        use_wal(file)
        # A machine that loses power has other worries: a lost commit is a forgotten assignment.
        file.execute("PRAGMA synchronous = OFF")
        with self._transaction():
            (version,) = file.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"it has version {version}, not {_VERSION}")
            if version == 0:
                for statement in filter(str.strip, _TABLES.split(";")):
                    file.execute(statement)
                file.execute("INSERT INTO opens VALUES (?)", (now + TTL + SLACK,))
                file.execute(f"PRAGMA user_version = {_VERSION}")
            (opens,) = file.execute("SELECT at FROM opens").fetchone()
        return min(int(opens), now + TTL + SLACK)

    async def exchange(self, entries: Sequence[Entry]) -> list[Reply | None]:
        if self._now() < self._opens:
            return [None] * len(entries)
        return await asyncio.to_thread(self._exchange, entries)

    def _exchange(self, entries: Sequence[Entry]) -> list[Reply | None]:
        with self._lock:
            try:
                with self._transaction():
                    return self._settle(entries, self._now())
            except sqlite3.Error as error:
                raise StoreUnavailable(f"the file of quotas {self._path}: {error}") from None

    def _settle(self, entries: Sequence[Entry], now: int) -> list[Reply | None]:
        accounts: dict[str, Account] = {}
        replies: list[Reply | None] = []
        for key, terms, request in entries:
            if key not in accounts:
                accounts[key] = self._load(key) or Account(terms)
            replies.append(accounts[key].settle(request, terms, now))
        self._file.executemany(
            "INSERT OR REPLACE INTO account VALUES (?, ?, ?)",
            [(key, account.expiry(), pack_account(account)) for key, account in accounts.items()],
        )
        if not 0 <= now - self._swept < _SWEEP:
            self._swept = now
            self._file.execute("DELETE FROM account WHERE expiry <= ?", (now,))
        return replies

    def _load(self, key: str) -> Account | None:
        row = self._file.execute("SELECT value FROM account WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        try:
            return unpack_account(row[0])
        except ValueError as error:
            raise sqlite3.DatabaseError(str(error)) from None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    def _now(self) -> int:
        return self._clock.now() // MILLISECOND

    async def close(self) -> None:
        with self._lock:
            self._file.close()
