"""Ledgers for tests: each test runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.quota import Ledger
from penstock.testing import FakeClock
from quota.postgres_server import own_database, running_server, without_server
from stores import redis_server

# Noon in UTC on January 15, 2024.
START = 1_705_320_000 * 1_000_000_000
PLANS = {
    "free": {"requests": "1000/month"},
    "pro": {"requests": "10000/month", "tokens": "50000/month", "rollover": 2000},
    "team": {"requests": "20000/month", "tokens": "90000/month", "overdraft": 500},
}


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str | None]:
    with running_server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str | None) -> Iterator[str]:
    if postgres_server is None:
        without_server()
    with own_database(postgres_server) as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/quota.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database."""
    name: str = request.getfixturevalue(f"{request.param}_url")
    return name


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def ledger_at(clock: FakeClock) -> Iterator[Callable[[str], Ledger]]:
    """Opens ledgers, which are closed after the test, and must then be in order."""
    ledgers: list[Ledger] = []

    def make(url: str) -> Ledger:
        ledgers.append(Ledger(url, plans=PLANS, clock=clock))
        return ledgers[-1]

    yield make
    try:
        for ledger in ledgers[-1:]:
            assert ledger.reconcile().differences == ()
    finally:
        for ledger in ledgers:
            ledger.close()


@pytest.fixture
def ledger(url: str, ledger_at: Callable[[str], Ledger]) -> Ledger:
    return ledger_at(url)


@pytest.fixture
def rounds() -> int:
    """How often a kill test kills: more in `make soak`."""
    return int(os.environ.get("PENSTOCK_LEDGER_KILLS", "4"))


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A server for all tests of quotas: use keys with `prefix` only."""
    pytest.importorskip("redis")
    with redis_server.running_server() as url:
        if url is None:
            pytest.skip(redis_server.NO_SERVER)
        yield url


@pytest.fixture
def prefix() -> str:
    """For the names of keys in Redis; each test has its own."""
    return f"penstock-test-{uuid.uuid4().hex}"
