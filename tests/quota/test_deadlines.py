"""Databases that do not answer, which stop a caller for the ledger's deadline and no longer."""

from __future__ import annotations

import socket
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from penstock.quota import InvalidQuota, Ledger, LedgerUnavailable
from quota.postgres_server import server_to_kill


def test_a_frozen_server_stops_nobody_for_longer_than_the_deadline() -> None:
    """It has accepted the connection, and its kernel acknowledges every packet."""
    server = server_to_kill()
    try:
        server.start()
        plans = {"p": {"m": "1000/month"}}
        with Ledger(server.url(), plans=plans, deadline="2s") as ledger:
            ledger.open("acme", plan="p")
            assert ledger.balance("acme")["m"].available == 1000
            server.freeze()
            began = time.monotonic()
            with ThreadPoolExecutor(8) as pool:
                calls = [
                    pool.submit(ledger.spend, "acme", 1, meter="m", ref=str(number))
                    for number in range(7)
                ]
                calls.append(pool.submit(ledger.balance, "acme"))
                for call in calls:
                    with pytest.raises(LedgerUnavailable, match=r"did not answer in time|timeout"):
                        call.result(60)
            assert time.monotonic() - began < 30  # 2 s for a group, twice; on a busy machine
            server.thaw()
            for number in range(7):
                ledger.spend("acme", 1, meter="m", ref=str(number))
            assert ledger.balance("acme")["m"].spent == 7
            assert ledger.reconcile()
            server.freeze()
            ending = threading.Thread(target=ledger.close)
            with ThreadPoolExecutor(1) as pool:
                lost = pool.submit(ledger.spend, "acme", 1, meter="m")
                ending.start()
                ending.join(60)
                assert not ending.is_alive()
                assert isinstance(lost.exception(60), LedgerUnavailable)
    finally:
        server.thaw()
        server.stop()


def test_a_server_that_accepts_and_never_answers_has_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/quota"
        with Ledger(url, deadline="100ms") as ledger:
            began = time.monotonic()
            with pytest.raises(LedgerUnavailable):
                ledger.open("acme")
            assert time.monotonic() - began < 8  # libpq's least is 2 s; it was 10 s


def test_a_transaction_that_hangs_stops_others_for_the_deadline_at_most(postgres_url: str) -> None:
    with Ledger(postgres_url, deadline="1s") as ledger:
        ledger.open("acme")
        with psycopg.connect(postgres_url) as hanging:
            hanging.execute("SELECT * FROM penstock_ledger FOR UPDATE")
            with pytest.raises(LedgerUnavailable, match=r"statement timeout|answer in time"):
                ledger.open("other")
            hanging.rollback()
            assert ledger.open("other").name == "other"


def test_a_locked_file_has_the_deadline(sqlite_url: str) -> None:
    with Ledger(sqlite_url, deadline="50ms") as ledger:
        ledger.open("acme")
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerUnavailable, match="locked"):
                ledger.open("other")
        assert ledger.open("other").name == "other"


@pytest.mark.parametrize("deadline", [0, -1, "soon", None, float("nan")])
def test_a_wrong_deadline_is_refused(sqlite_url: str, deadline: Any) -> None:
    with pytest.raises(InvalidQuota, match="deadline"):
        Ledger(sqlite_url, deadline=deadline)
