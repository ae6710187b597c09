"""Opening a SQLite file that other processes open at the same moment.

The first connection to a new file switches it to write-ahead logging. SQLite answers others that
try the same at that moment with "database is locked" at once, whatever their time-out is: waiting
could be a deadlock. Trying again cannot.
"""

from __future__ import annotations

import sqlite3
import time

PATIENCE = 10.0  # seconds
_PAUSE = 0.005


def use_wal(connection: sqlite3.Connection, patience: float = PATIENCE) -> None:
    """Switch to write-ahead logging, trying again while another process does the same."""
    end = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
        time.sleep(_PAUSE)
