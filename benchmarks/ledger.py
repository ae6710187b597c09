"""Settlements of a ledger, each acknowledged when it is on the disk.

64 tasks report the totals of their stocks to one `AsyncLedger`. Beside it, the way that is often
found: an UPDATE of the balance and a commit for each call, with the same durability.

What the disk takes for a commit decides much of it: ``TMPDIR=/dev/shm`` shows the rest.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.report import Table
from penstock.quota import AsyncLedger, StockTotals

CALLERS = 64
# How many stocks a caller reports in a call, and how many accounts all of them belong to.
SHAPES = ((1, 64), (4, 256), (4, 64), (4, 4))
# A benchmark uses the tests' server, as those of Redis do.
sys.path.append(str(Path(__file__).parents[1] / "tests"))


@contextmanager
def _postgres() -> Iterator[str | None]:
    try:
        from quota.postgres_server import own_database, running_server
    except ImportError:  # psycopg is not installed
        yield None
        return
    with running_server() as server:
        if server is None:
            yield None
            return
        with own_database(server) as url:
            yield url


@contextmanager
def _sqlite(folder: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        yield f"sqlite:///{own}/quota.db"


async def _settle(url: str, reports: int, accounts: int, count: int) -> tuple[float, ...]:
    """Settlements a second, CPU time of each in microseconds, and the 99th percentile in ms.

    Each caller has as many stocks as it has ``reports`` in a call, and waits for the answer.
    """
    async with AsyncLedger(url, plans={"p": {"tokens": "1000000000/month"}}) as ledger:
        stocks = CALLERS * reports
        names = [f"account-{reports}-{accounts}-{number % accounts}" for number in range(stocks)]
        for name in set(names):
            await ledger.open(name, plan="p")
        took: list[float] = []

        async def report(caller: int, steps: range) -> None:
            own = [
                (names[number], f"stock-{number}")
                for number in range(caller * reports, (caller + 1) * reports)
            ]
            for step in steps:
                totals = [
                    StockTotals(account, "tokens", id, 1_000_000, 3 * step) for account, id in own
                ]
                begin = time.perf_counter()
                await ledger.stock_many(totals)
                took.append(time.perf_counter() - begin)

        await asyncio.gather(*(report(caller, range(20)) for caller in range(CALLERS)))
        took.clear()
        steps = range(20, 20 + count // stocks)
        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(report(caller, steps) for caller in range(CALLERS)))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        assert await ledger.reconcile()
    took.sort()
    settled = len(took) * reports
    return settled / wall, cpu / settled * 1e6, took[len(took) * 99 // 100] * 1e3


def _naive_sqlite(path: str, count: int) -> tuple[float, float]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE balance (account INTEGER PRIMARY KEY, spent INTEGER)")
    connection.executemany("INSERT INTO balance VALUES (?, 0)", [(n,) for n in range(CALLERS)])
    wall, cpu = time.perf_counter(), time.process_time()
    for number in range(count):
        connection.execute(
            "UPDATE balance SET spent = spent + 3 WHERE account = ?", (number % CALLERS,)
        )
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    connection.close()
    return count / wall, cpu / count * 1e6


def _naive_postgres(url: str, count: int) -> tuple[float, float]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE balance (account bigint PRIMARY KEY, spent bigint)")
        connection.execute("INSERT INTO balance SELECT n, 0 FROM generate_series(0, 63) n")
        wall, cpu = time.perf_counter(), time.process_time()
        for number in range(count):
            connection.execute(
                "UPDATE balance SET spent = spent + 3 WHERE account = %s", (number % CALLERS,)
            )
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return count / wall, cpu / count * 1e6


def _disk(folder: str) -> float:
    """Milliseconds that the disk takes to keep 64 KB: the median of some."""
    took = []
    with open(f"{folder}/disk", "wb", buffering=0) as file:
        for _ in range(50):
            file.write(bytes(65_536))
            begin = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - begin)
    return sorted(took)[len(took) // 2] * 1e3


def run(quick: bool = False) -> list[Table]:
    rounds, count = (1, 8_000) if quick else (3, 40_000)
    columns = {
        "": "", "a second": ",.0f", "p99, ms": ",.1f", "times an UPDATE": ",.1f",
        "CPU each, us": ",.0f", "a second and core": ",.0f",
    }  # fmt: skip
    table = Table(f"Settlements of {CALLERS} callers, on the disk when acknowledged", columns)

    def add(name: str, best: tuple[float, ...], naive: float) -> None:
        rate, cpu = best[:2]
        p99 = best[2] if len(best) > 2 else None
        table.add(name, rate, p99, rate / naive, cpu, 1e6 / cpu if p99 else None)

    def measure(name: str, url: Callable[[], AbstractContextManager[str]], naive: float) -> None:
        for reports, accounts in SHAPES:
            runs = []
            for _ in range(rounds):
                with url() as fresh:
                    runs.append(asyncio.run(_settle(fresh, reports, accounts, count)))
            add(f"{name}, ledger, {reports} a call, {accounts} accounts", max(runs), naive)

    with tempfile.TemporaryDirectory() as folder:
        table.notes.append(f"the disk takes {_disk(folder):.2f} ms to keep 64 KB (fdatasync)")
        simple = max(_naive_sqlite(f"{folder}/naive-{n}.db", count // 20) for n in range(rounds))
        add("SQLite, an UPDATE for each call", simple, simple[0])
        measure("SQLite", lambda: _sqlite(folder), simple[0])
    with _postgres() as url:
        if url is not None:
            from quota.postgres_server import own_database

            simple = _naive_postgres(url, count // 20)
            add("PostgreSQL, an UPDATE for each call", simple, simple[0])
            measure("PostgreSQL", lambda: own_database(url), simple[0])
    table.notes.append("the CPU time is that of this process, which includes SQLite")
    return [table]
