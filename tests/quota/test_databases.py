"""The databases themselves: migrations, constraints, URLs, and what is lost with a connection."""

from __future__ import annotations

import os
import pickle
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.quota import (
    InvalidQuota,
    Ledger,
    LedgerUnavailable,
    LedgerVersion,
    QuotaError,
    QuotaExceeded,
    UnknownAccount,
)
from penstock.quota.databases.migrations import POSTGRES, SQLITE, missing
from penstock.quota.databases.tables import VERSION
from quota.postgres_server import server_to_kill


@contextmanager
def raw(url: str) -> Iterator[Callable[[str], list[Any]]]:
    """The database without a ledger: runs a statement."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        try:
            yield lambda sql: connection.execute(sql).fetchall()
            connection.commit()
        finally:
            connection.close()
    else:
        with psycopg.connect(url, autocommit=True) as postgres:

            def run(sql: str) -> list[Any]:
                cursor = postgres.execute(sql.encode())
                return cursor.fetchall() if cursor.description else []

            yield run


def test_the_history_cannot_be_changed(ledger: Ledger, url: str) -> None:
    ledger.open("acme", plan="free")
    with raw(url) as run:
        for statement in (
            "UPDATE penstock_entry SET amount = 1",
            "DELETE FROM penstock_entry",
            "DELETE FROM penstock_entry WHERE seq = 1",
        ):
            with pytest.raises((sqlite3.Error, psycopg.Error), match="append-only"):
                run(statement)
        if url.startswith("postgres"):
            with pytest.raises(psycopg.Error, match="append-only"):
                run("TRUNCATE penstock_entry")
    assert len(list(ledger.entries())) == 1


@pytest.mark.parametrize(
    ("seq", "idem"), [("seq", "idem"), ("seq", "'new'"), ("seq + 9", "idem"), ("0", "'new'")]
)
def test_the_history_cannot_be_replaced(
    sqlite_url: str, ledger_at: Callable[[str], Ledger], seq: str, idem: str
) -> None:
    """SQLite's REPLACE deletes without a trigger of deletes: by number, by name, or both."""
    ledger = ledger_at(sqlite_url)
    ledger.open("acme", plan="free")
    ledger.spend("acme", 5, meter="requests", ref="job")
    before = list(ledger.entries())
    with raw(sqlite_url) as run, pytest.raises(sqlite3.Error, match="append-only"):
        run(
            "REPLACE INTO penstock_entry SELECT account, meter, period, kind, -4, held, source,"
            f" {idem}, at, who, note, {seq} FROM penstock_entry WHERE seq = 2"
        )
    assert list(ledger.entries()) == before


def test_the_database_itself_refuses_a_balance_below_the_overdraft(
    ledger: Ledger, url: str
) -> None:
    ledger.open("acme", plan="free")
    with raw(url) as run:
        for statement in (
            "UPDATE penstock_balance SET spent = 1001",
            "UPDATE penstock_balance SET held = 1001",
            "UPDATE penstock_balance SET granted = -1",
            "UPDATE penstock_credit SET used = 1001",
            "UPDATE penstock_account SET anchor_day = 32",
        ):
            with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
                run(statement)


@pytest.mark.parametrize(
    ("tamper", "difference"),
    [
        ("UPDATE penstock_balance SET spent = spent + 1", "entries and balance: spent: 5 and 6"),
        ("UPDATE penstock_balance SET held = held - 1", "entries and balance: held: 100 and 99"),
        ("UPDATE penstock_credit SET used = used + 1", "credits and balance: used: 6 and 5"),
        ("UPDATE penstock_hold SET settled = 9", "entries and sources: settled: 0 and 9"),
        ("UPDATE penstock_hold SET remaining = 0", "holds and balance: held: 0 and 100"),
        ("UPDATE penstock_period SET spent = 0", "entries and periods: used: 5 and 0"),
        ("UPDATE penstock_ledger SET seq = 9", "numbers of entries, without gaps: 9 and 3"),
        ("DELETE FROM penstock_hold", "entries and sources: held: 100 and 0"),
        (
            "UPDATE penstock_hold SET granted = 90",
            "sources: granted, and held, settled or returned: 90 and 100",
        ),
    ],
)
def test_reconcile_says_what_differs(url: str, tamper: str, difference: str) -> None:
    with Ledger(url, plans={"free": {"requests": "1000/month"}}) as ledger:
        ledger.open("acme", plan="free")
        ledger.spend("acme", 5, meter="requests")
        ledger.hold("acme", 100, meter="requests")
        assert ledger.reconcile()
        with raw(url) as run:
            run(tamper)
        result = ledger.reconcile()
        assert not result
        assert any(str(found).endswith(difference) for found in result.differences), result


# Versions ----------------------------------------------------------------------------------


def test_a_newer_version_is_refused_and_left_untouched(url: str) -> None:
    with Ledger(url) as ledger:
        ledger.open("acme")
    with raw(url) as run:
        run("UPDATE penstock_schema SET version = 99")
    before = Path(url.removeprefix("sqlite:///")).read_bytes() if "sqlite" in url else None
    with Ledger(url) as ledger, pytest.raises(LedgerVersion, match=r"version 99.*upgrade Penstock"):
        ledger.open("other")
    if before is not None:
        assert Path(url.removeprefix("sqlite:///")).read_bytes() == before
    with raw(url) as run:
        assert run("SELECT id FROM penstock_account") == [("acme",)]
        run(f"UPDATE penstock_schema SET version = {VERSION}")
    with Ledger(url) as ledger:
        assert ledger.account("acme")


def test_a_migration_that_fails_leaves_nothing_behind(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, migrations in (("sqlite.SQLITE", SQLITE), ("postgres.POSTGRES", POSTGRES)):
        broken = [[*migrations[0], "CREATE TABLE ("], *migrations[1:]]
        monkeypatch.setattr(f"penstock.quota.databases.{name}", broken)
    with Ledger(url) as ledger, pytest.raises(LedgerUnavailable):
        ledger.connect()
    monkeypatch.undo()
    with Ledger(url) as ledger:
        ledger.open("acme")  # as if nothing had happened
        assert ledger.reconcile()


def test_a_ledger_of_the_first_version_is_brought_up_to_date(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, migrations in (("sqlite.SQLITE", SQLITE), ("postgres.POSTGRES", POSTGRES)):
        monkeypatch.setattr(f"penstock.quota.databases.{name}", migrations[:1])
    with Ledger(url, plans={"p": {"m": "100/month"}}) as ledger:
        ledger.open("acme", plan="p")
        ledger.spend("acme", 5, meter="m", ref="job")
        ledger.stock("acme", meter="m", id="gate", granted=20)
        before = list(ledger.entries())
    with raw(url) as run:  # as the first version left a holder that has used more than it held
        run("UPDATE penstock_hold SET granted = 3")
        assert run("SELECT version FROM penstock_schema") == [(1,)]
    monkeypatch.undo()
    with Ledger(url) as ledger:
        assert list(ledger.entries()) == before
        assert ledger.stock("acme", meter="m", id="gate", granted=20, settled=8).granted == 20
        ledger.spend("acme", 1, meter="m")
        assert [entry.seq for entry in ledger.entries("acme", after=2)][-1] == len(before) + 2
        assert ledger.reconcile().differences == ()
    with raw(url) as run:
        assert run("SELECT version FROM penstock_schema") == [(VERSION,)]
        with pytest.raises((sqlite3.Error, psycopg.Error), match="append-only"):
            run("DELETE FROM penstock_entry")


def test_migrations_go_forwards_only() -> None:
    steps = [["a"], ["b"], ["c"]]
    assert missing(None, steps, "x")[:3] == ["a", "b", "c"]
    assert missing(1, steps, "x")[:2] == ["b", "c"]
    assert missing(3, steps, "x") == []
    for version in (4, -1):
        with pytest.raises(LedgerVersion):
            missing(version, steps, "x")


def test_other_tables_in_the_database_stay(url: str) -> None:
    with raw(url) as run:
        run("CREATE TABLE account (id INTEGER)")
        run("INSERT INTO account VALUES (7)")
    with Ledger(url) as ledger:
        ledger.open("acme")
    with raw(url) as run:
        assert run("SELECT id FROM account") == [(7,)]


def test_a_file_that_is_no_database_is_left_untouched(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("these are my notes, and no database at all\n" * 50)
    before = file.read_bytes()
    with (
        Ledger(f"sqlite:///{file}") as ledger,
        pytest.raises(LedgerVersion, match="left untouched"),
    ):
        ledger.connect()
    assert file.read_bytes() == before


# URLs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqllite:///quota.db", "does not begin with 'sqllite' (did you mean 'sqlite'?)"),
        ("mysql://host/db", "does not begin with 'mysql'"),
        ("quota.db", "does not begin with 'quota.db'"),
        ("", "does not begin with ''"),
        ("sqlite://quota.db", "incomplete after 'sqlite'"),
        ("sqlite:///", "incomplete after 'sqlite'"),
        ("sqlite:///:memory:", "a ledger is kept in a file"),
        ("postgresql:host", "incomplete after 'postgresql'"),
        ("postgresql://u:secret@host:port:x/db?bad=1", "cannot be read"),
        (None, "is a str such as"),
        (Path("quota.db"), "is a str such as"),
    ],
)
def test_a_wrong_url_says_what_to_write(url: Any, message: str) -> None:
    with pytest.raises(InvalidQuota, match=re.escape(message)) as refused:
        Ledger(url)
    assert "secret" not in str(refused.value)
    assert "postgresql://user@host/database" in str(refused.value)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/missing/quota.db")
    with ledger, pytest.raises(LedgerUnavailable, match="there is no folder"):
        ledger.connect()


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with Ledger("postgresql://me:secret@127.0.0.1:1/quota") as ledger:
        assert repr(ledger) == "<Ledger postgresql://127.0.0.1:1/quota>"
        with pytest.raises(LedgerUnavailable, match=r"postgresql://127\.0\.0\.1:1/quota") as lost:
            ledger.open("acme")
        assert "secret" not in str(lost.value)


def test_without_the_extra_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from penstock.quota import Ledger\n"
        "Ledger('sqlite:///x.db').close()\n"
        "Ledger('postgresql://localhost/x')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert "pip install 'penstock[postgres]'" in done.stderr.splitlines()[-1]


# Processes ---------------------------------------------------------------------------------


def test_a_forked_process_has_its_own_connections(url: str) -> None:
    plans = {"p": {"m": "1000/month"}}
    with Ledger(url, plans=plans) as ledger:
        ledger.open("acme", plan="p")
        ledger.spend("acme", 1, meter="m")
        children = []
        for number in range(3):
            child = os.fork()
            if not child:
                code = 1
                try:
                    for step in range(5):
                        ledger.spend("acme", 1, meter="m", ref=f"{number}:{step}")
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        for step in range(5):
            ledger.spend("acme", 1, meter="m", ref=f"parent:{step}")
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
        assert ledger.balance("acme")["m"].spent == 21
        assert ledger.reconcile()


def test_a_server_that_was_restarted_is_found_again() -> None:
    server = server_to_kill()
    try:
        server.start()
        with Ledger(server.url(), plans={"p": {"m": "1000/month"}}) as ledger:
            ledger.open("acme", plan="p")
            ledger.spend("acme", 3, meter="m", ref="before")
            assert ledger.balance("acme")["m"].spent == 3
            server.kill()
            with pytest.raises(LedgerUnavailable):
                ledger.spend("acme", 4, meter="m", ref="meanwhile")
            with pytest.raises(LedgerUnavailable):
                ledger.balance("acme")
            server.start()
            ledger.spend("acme", 4, meter="m", ref="meanwhile")  # repeated
            assert ledger.balance("acme")["m"].spent == 7
            server.kill()
            server.start()  # without a call in between: nobody notices
            ledger.spend("acme", 5, meter="m")
            assert ledger.balance("acme")["m"].spent == 12
            assert ledger.reconcile()
    finally:
        server.stop()


def test_errors_can_be_pickled() -> None:
    for error in (
        QuotaExceeded("acme", "tokens", 5, 3, 17),
        UnknownAccount("acme"),
        QuotaError("x"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__dict__) == (
            type(error),
            str(error),
            error.__dict__,
        )
