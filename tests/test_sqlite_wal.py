"""Files of SQLite that many open at the same moment."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.kv import KeyValue
from penstock.quota import Ledger
from penstock.service.rlqs.file_bank import FileBank
from penstock.sqlite_wal import use_wal

AT_ONCE = 8


def open_bank(path: Path) -> None:
    FileBank(path)._file.close()


def open_values(path: Path) -> None:
    with KeyValue(f"file:{path}") as values:
        values.put("a", "b")


def open_ledger(path: Path) -> None:
    with Ledger(f"sqlite:///{path}") as ledger:
        ledger.open("acme")


def errors_of(opener: Callable[[Path], None], path: Path) -> list[Exception]:
    """What goes wrong if many open a file at the same moment."""
    errors: list[Exception] = []
    barrier = threading.Barrier(AT_ONCE)

    def one() -> None:
        barrier.wait()
        try:
            opener(path)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.parametrize("opener", [open_bank, open_values, open_ledger])
def test_a_new_file_that_many_open_at_once(opener: Callable[[Path], None], tmp_path: Path) -> None:
    """Without another try, most runs fail with "database is locked"."""
    for round_ in range(10):
        assert errors_of(opener, tmp_path / f"{round_}.db") == []


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "held.db"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("CREATE TABLE t (a)")
    holder.execute("BEGIN EXCLUSIVE")
    other = sqlite3.connect(path, timeout=0, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        use_wal(other, patience=0.05)
    holder.execute("COMMIT")
    use_wal(other)
