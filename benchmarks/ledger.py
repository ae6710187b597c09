"""Settlements of a ledger, each acknowledged when it is on the disk.

64 tasks report the totals of their stocks to one `AsyncLedger`. Beside it, the way that is often
found: an UPDATE of the balance and a commit for each call, with the same durability.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import Table
from penstock.quota import AsyncLedger, StockTotals

CALLERS = 64
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


def run(quick: bool = False) -> list[Table]:
    rounds, count = (1, 4_000) if quick else (3, 40_000)
    columns = {
        "": "", "a second": ",.0f", "CPU each, us": ",.0f", "p99, ms": ",.1f",
        "times an UPDATE": ",.1f",
    }  # fmt: skip
    table = Table(f"Settlements of {CALLERS} callers, on the disk when acknowledged", columns)

    def add(name: str, best: tuple[float, ...], naive: float) -> None:
        table.add(name, best[0], best[1], best[2] if len(best) > 2 else None, best[0] / naive)

    with tempfile.TemporaryDirectory() as folder:
        simple = max(_naive_sqlite(f"{folder}/naive-{n}.db", count // 20) for n in range(rounds))
        add("SQLite, an UPDATE for each call", simple, simple[0])
        for accounts in (64, 4):
            best = max(
                asyncio.run(_settle(f"sqlite:///{folder}/{accounts}-{n}.db", accounts, count))
                for n in range(rounds)
            )
            add(f"SQLite, ledger, {accounts} accounts", best, simple[0])
    with _postgres() as url:
        if url is not None:
            simple = _naive_postgres(url, count // 20)
            add("PostgreSQL, an UPDATE for each call", simple, simple[0])
            for accounts in (64, 4):
                best = asyncio.run(_settle(url, accounts, count))
                add(f"PostgreSQL, ledger, {accounts} accounts", best, simple[0])
    return [table]
