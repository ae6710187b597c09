"""A worker with quotas: the ledger, its health, metrics and balances."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")

from penstock.admin.commands import apply_command
from penstock.errors import UnsupportedLimit
from penstock.metrics import Snapshot
from penstock.quota import Ledger
from penstock.running.listeners import Sockets
from penstock.running.rules_in_force import read_rules
from penstock.running.settings import Settings, SettingsError
from penstock.running.worker import Worker
from stores.redis_server import wait_until

RULES = """
domain: api
plans: {free: {requests: 20/month}}
descriptors:
  - key: account
    cost: 2
    limits: 1000/hour
    quota: {meter: requests, plan_by: plan}
"""
ACME = ({"account": "acme"}, {"plan": "free"})


def worker_of(tmp_path: Path, ledger: str, **more: Any) -> Worker:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    settings = Settings(
        rules=(str(file),), grpc="off", ledger=ledger, settle="1h",
        journal=str(tmp_path / "journal"), **more,
    )  # fmt: skip
    return Worker(settings, "memory", "0", None, read_rules(settings))


def metrics(answer: Any) -> Snapshot:
    return Snapshot.from_bytes(answer["result"].encode("latin-1"))


async def test_a_worker_with_a_ledger(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/quota.db"
    worker = worker_of(tmp_path, url)
    await worker.start(Sockets())
    passed = [bool(await worker.gate.check(*ACME)) for _ in range(12)]
    assert passed == [True] * 10 + [False] * 2
    assert worker.quotas is not None
    await asyncio.to_thread(worker.quotas.store.settle)
    balance = (await worker.apply({"do": "balance", "account": "acme"}))["result"]
    requests = balance["meters"]["requests"]
    assert (balance["plan"], requests["available"], requests["period"]["used"]) == ("free", 0, 20)
    assert requests["runs_out"] is not None
    unknown = await worker.apply({"do": "balance", "account": "nobody"})
    assert (unknown["ok"], unknown["status"]) == (False, 404)
    health = (await worker.apply({"do": "health"}))["result"]
    assert health["ledger"] == [True, ""]
    snapshot = metrics(await worker.apply({"do": "snapshot"}))
    assert snapshot.get("penstock_quota_spent_units_total", "requests") == 20
    assert snapshot.get("penstock_quota_near_empty_total") == 1
    assert snapshot.get("penstock_quota_degraded") == 0
    await worker.drain(0)
    with Ledger(url) as ledger:
        meter = ledger.balance("acme")["requests"]
        assert (meter.spent, meter.held) == (20, 0)
        assert ledger.reconcile()


async def test_counters_of_the_admin_api_show_quotas_and_give_back(tmp_path: Path) -> None:
    worker = worker_of(tmp_path, f"sqlite:///{tmp_path}/quota.db")
    await worker.start(Sockets())
    for _ in range(3):
        await worker.gate.check(*ACME)
    command = {"descriptors": [[["account", "acme"]]]}
    (shown,) = (await apply_command(worker.gate, {"do": "counters", **command}))["result"]
    limit, quota = shown["limits"]
    assert (quota["name"], quota["remaining"]) == ("api/account quota requests", 14)
    assert quota["limit"].startswith("20/month")
    assert limit["remaining"] == 994
    changed = (await apply_command(worker.gate, {"do": "refund", "hits": 2, **command}))["result"]
    assert [each["remaining"] for each in changed["after"][0]["limits"]] == [998, 18]
    # A reset is for counters: what was spent of a quota stays spent.
    changed = (await apply_command(worker.gate, {"do": "reset", **command}))["result"]
    assert [each["remaining"] for each in changed["after"][0]["limits"]] == [1000, 18]
    (domain,) = (await apply_command(worker.gate, {"do": "rules"}))["result"]["domains"]
    (rule,) = domain["rules"]
    assert (rule["meter"]["meter"], rule["meter"]["plan_by"]) == ("requests", "plan")
    assert "quota=requests" in rule["line"]
    assert (await apply_command(worker.gate, {"do": "modes_of", "name": quota["name"]}))["result"]
    await worker.drain(0)


async def test_it_starts_without_the_ledger(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    worker = worker_of(tmp_path, "postgresql://nobody@127.0.0.1:1/none?connect_timeout=1")
    await worker.start(Sockets())
    health = (await worker.apply({"do": "health"}))["result"]
    assert health["ledger"][0] is False
    assert health["ratelimit"] == [True, ""]
    verdict = await worker.gate.check(*ACME)
    assert not verdict
    assert verdict.decision is not None
    assert verdict.decision.degraded
    assert (await worker.apply({"do": "balance", "account": "acme"}))["status"] == 503
    snapshot = metrics(await worker.apply({"do": "snapshot"}))
    assert snapshot.get("penstock_quota_degraded") == 1
    await worker.drain(0)


def test_a_ledger_that_makes_no_sense(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="ledger: "):
        worker_of(tmp_path, "mysql://localhost/quota")


def test_rules_with_quotas_need_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedLimit, match="penstock serve --ledger"):
        worker_of(tmp_path, "")


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    posted: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", posted
    server.shutdown()
    thread.join()
    server.server_close()


async def test_the_webhook_learns_of_accounts_that_are_nearly_empty(
    tmp_path: Path, receiver: tuple[str, list[dict[str, Any]]]
) -> None:
    url, posted = receiver
    worker = worker_of(tmp_path, f"sqlite:///{tmp_path}/quota.db", webhook=url)
    await worker.start(Sockets())
    for _ in range(10):
        await worker.gate.check(*ACME)
    assert worker.quotas is not None
    await asyncio.to_thread(worker.quotas.store.settle)
    await asyncio.to_thread(wait_until, lambda: bool(posted), "the message", 60)
    await worker.drain(0)
    (message,) = posted
    assert (message["event"], message["account"], message["remaining"]) == (
        "QuotaNearEmpty", "acme", 0,
    )  # fmt: skip
