"""kill -9, again and again: of the service, one of its workers, Redis, and PostgreSQL.

Whatever is killed when: a request that was let through is settled, no unit is settled twice, the
quota is never exceeded, nothing is lost for good, and the ledger agrees with itself. `make soak`
runs 200 rounds: ``PENSTOCK_SERVICE_KILLS=200``.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.quota import Ledger
from quota.postgres_server import PostgresServer, find_binaries
from running.e2e.running import Penstock, reserved_port
from stores import redis_server
from stores.redis_server import wait_until

pytest.importorskip("httptools")
pytest.importorskip("redis")

ROUNDS = int(os.environ.get("PENSTOCK_SERVICE_KILLS", "4"))
SEED = int(os.environ.get("PENSTOCK_SERVICE_KILLS_SEED", "11"))
ACCOUNTS = ("acme", "bob", "eve")
# Enough for the load of all rounds, and little enough that the last units are fought for.
QUOTA = 400 + 300 * ROUNDS
RULES = f"""
domain: api
plans: {{test: {{requests: {QUOTA}/month}}}}
descriptors:
  - key: account
    limits: {{limit: 1000000/minute, on_failure: open}}
    quota: {{meter: requests, plan_by: plan}}
"""


class Load:
    """Threads that ask the service, and count what they were told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.allowed: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()  # no answer: let through or not
        self.refused: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(4)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        chance = random.Random(number)
        while not self._stop.is_set():
            account = chance.choice(ACCOUNTS)
            outcome = self.ask(account)
            with self._lock:
                outcome[account] += 1
            self._stop.wait(0.005)

    def ask(self, account: str) -> Counter[str]:
        descriptors = [{"account": account}, {"plan": "test"}]
        body = json.dumps({"domain": "api", "descriptors": descriptors})
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        try:
            try:
                connection.connect()
            except OSError:
                return self.refused  # it was not asked
            try:
                connection.request("POST", "/v1/check", body)
                status = connection.getresponse().status
            except (OSError, http.client.HTTPException):
                return self.unknown
        finally:
            connection.close()
        if status == 200:
            return self.allowed
        return self.refused if status == 429 else self.unknown

    def progress(self) -> int:
        with self._lock:
            return sum(self.allowed.values()) + sum(self.refused.values())

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_whatever_is_killed_nothing_is_lost_or_counted_twice(
    stack: ExitStack, tmp_path: Path
) -> None:
    binaries, redis_binary = find_binaries(), redis_server.find_binary()
    if binaries is None or redis_binary is None:
        pytest.skip("needs PostgreSQL and Valkey or Redis")
    postgres = PostgresServer(binaries)
    stack.callback(postgres.stop)
    postgres.start()
    url, http_port = postgres.url(), stack.enter_context(reserved_port())
    redis = redis_server.Server(redis_binary)
    stack.callback(redis.stop)
    redis.start()
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)

    def start() -> Penstock:
        return Penstock(
            rules, "--http", f"127.0.0.1:{http_port}", "--grpc", "off", "--workers", "2",
            "--ledger", url, "--store", redis.url,
            "--deadline", "2s", "--settle", "300ms", "--journal", str(tmp_path / "journal"),
        ).wait()  # fmt: skip

    service = [start()]
    stack.callback(lambda: service[0].end())
    load = Load(http_port)
    stack.callback(load.stop)

    def kill_service() -> None:
        service[0].kill()
        service[0].end()
        service[0] = start()

    def kill_worker() -> None:
        os.kill(chance.choice(service[0].workers), signal.SIGKILL)

    def kill_redis() -> None:
        redis.kill()
        time.sleep(chance.random() * 0.3)
        redis.restart()

    def kill_postgres() -> None:
        postgres.kill()
        time.sleep(chance.random() * 0.3)
        postgres.start()

    chance = random.Random(SEED)
    kills: list[Callable[[], None]] = [kill_service, kill_worker, kill_redis, kill_postgres]
    chance.shuffle(kills)
    for number in range(ROUNDS):
        before = load.progress()
        wait_until(lambda before=before: load.progress() > before + 60, "requests", 60)  # type: ignore[misc]
        time.sleep(chance.random() * 0.4)
        kills[number % 4]()
        if number % 4 == 3:
            chance.shuffle(kills)
    before = load.progress()
    wait_until(lambda: load.progress() > before + 60, "requests", 60)
    load.stop()

    with Ledger(url) as ledger:
        # Whoever comes next reports for those that were killed.
        kill_service()
        bounds = {
            account: (load.allowed[account], load.allowed[account] + load.unknown[account])
            for account in ACCOUNTS
        }

        def settled() -> dict[str, int]:
            return {account: ledger.balance(account)["requests"].spent for account in ACCOUNTS}

        wait_until(
            lambda: all(settled()[account] >= bounds[account][0] for account in ACCOUNTS),
            "everything is settled", 60,
        )  # fmt: skip
        for account, spent in settled().items():
            least, most = bounds[account]
            assert least <= spent <= most, (account, least, spent, most)
            assert spent <= QUOTA

        # What was held for those that were killed is free again: all of the quota can be used.
        wait_until(lambda: _held(ledger) <= len(ACCOUNTS) * QUOTA // 5, "holds are given back", 60)
        for account in ACCOUNTS:
            with contextlib.suppress(AssertionError):
                wait_until(lambda a=account: _spend_all(load, a), "the rest is spent", 90)  # type: ignore[misc]
        service[0].end()
        for account in ACCOUNTS:
            balance = ledger.balance(account)["requests"]
            assert load.allowed[account] <= balance.spent <= QUOTA
            assert balance.spent <= load.allowed[account] + load.unknown[account]
            assert balance.period is not None
            assert balance.period.uncovered == 0
            assert balance.available == 0, (account, balance)
            assert balance.spent + balance.held == QUOTA
        assert ledger.reconcile().differences == ()


def _held(ledger: Ledger) -> int:
    return sum(ledger.balance(account)["requests"].held for account in ACCOUNTS)


def _spend_all(load: Load, account: str) -> bool:
    """Whether nothing is left, for longer than a refusal is remembered."""
    for _ in range(200):
        outcome = load.ask(account)
        outcome[account] += 1
        if outcome is load.refused:
            time.sleep(1.1)
            again = load.ask(account)
            again[account] += 1
            return again is load.refused
    return False
