"""Rules that no request of a proxy can match: said at the start, and in a metric."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")

from penstock.metrics import Snapshot
from penstock.running.dead_rules import MOST_LOGGED, log_dead_rules
from penstock.running.listeners import Sockets
from penstock.running.rules_in_force import read_rules
from penstock.running.settings import Settings
from penstock.running.sockets import listen
from penstock.running.worker import Worker
from running.e2e.running import ask

API = """\
domain: api
descriptors:
  - {key: ip, limits: 5/hour}
  - key: path
    descriptors:
      - {key: tenant, limits: 1/hour}
  - {key: "header:x-plan", limits: 1/hour}
  - {key: nosuchdim, limits: 1/hour}
"""
MAIL = "domain: mail\ndescriptors: [{key: sender, limits: 1/hour}]\n"
NAME = "penstock_rules_without_dimension"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "api.yaml").write_text(API)
    (tmp_path / "mail.yaml").write_text(MAIL)
    return str(tmp_path)


def log_of(caplog: pytest.LogCaptureFixture, **settings: Any) -> list[tuple[str, str]]:
    caplog.set_level(logging.INFO, "penstock.server")
    checked = Settings(**settings)
    log_dead_rules(checked, read_rules(checked))
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize(
    "proxies", [{"dimension": ("sender=header:x-sender",)}, {"trusted": ("10.0.0.0/8",)}]
)
def test_with_proxies_each_is_a_warning_at_the_start(
    folder: str, caplog: pytest.LogCaptureFixture, proxies: Any
) -> None:
    logged = log_of(caplog, rules=(folder,), **proxies)
    about = {text.split()[2]: text for level, text in logged if level == "WARNING"}
    mail = set() if "dimension" in proxies else {"mail/sender"}
    assert set(about) == {"api/path/tenant", "api/nosuchdim"} | mail
    assert "nobody says what 'tenant' is of a request" in about["api/path/tenant"]
    assert "--dimension nosuchdim=header:NAME" in about["api/nosuchdim"]


def test_if_there_may_be_no_proxies_it_is_one_line(
    folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    ((level, text),) = log_of(caplog, rules=(folder,))
    assert level == "INFO"
    assert text.startswith("3 rules are not for /v1/auth, where nobody says what ")
    for key in ("tenant", "nosuchdim", "sender"):
        assert key in text


def test_nothing_is_said_without_reason(
    folder: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    assert log_of(caplog, rules=(folder,), http="off", trusted=("10.0.0.0/8",)) == []
    (tmp_path / "mail.yaml").unlink()
    (tmp_path / "api.yaml").write_text("domain: api\ndescriptors: [{key: ip, limits: 5/hour}]")
    assert log_of(caplog, rules=(folder,), trusted=("10.0.0.0/8",)) == []


def test_many_are_not_all_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    steps = "\n".join(f"  - {{key: k{number}, limits: 1/hour}}" for number in range(50))
    (tmp_path / "many.yaml").write_text(f"domain: many\ndescriptors:\n{steps}\n")
    logged = log_of(caplog, rules=(str(tmp_path),), trusted=("10.0.0.0/8",))
    assert len(logged) == MOST_LOGGED + 1
    assert logged[-1][1] == f"and {50 - MOST_LOGGED} more rules do not apply to /v1/auth"


async def dead_in_metrics(folder: str, asks: tuple[str, ...] = (), **settings: Any) -> set[str]:
    checked = Settings(rules=(folder,), grpc="off", http="127.0.0.1:0", **settings)
    worker = Worker(checked, "memory", "0", None, read_rules(checked))
    (listener,) = listen(("127.0.0.1", 0))
    try:
        await worker.start(Sockets(listener, None))
        address = "{}:{}".format(*listener.getsockname())
        for path in asks:
            assert (await asyncio.to_thread(ask, address, path)).status == 200
        answer = await worker.apply({"do": "snapshot"})
        snapshot = Snapshot.from_bytes(answer["result"].encode("latin-1"))
        return {rule for (_, rule), value in snapshot.values.get(NAME, {}).items() if value == 1}
    finally:
        await worker.drain(0)


async def test_the_metric_names_the_rules_of_all_domains_if_there_are_proxies(
    folder: str,
) -> None:
    dead = await dead_in_metrics(folder, dimension=("sender=header:x-sender",))
    assert dead == {"api/path/tenant", "api/nosuchdim"}


async def test_else_the_metric_names_the_rules_of_domains_that_proxies_ask_for(
    folder: str,
) -> None:
    assert await dead_in_metrics(folder) == set()
    assert await dead_in_metrics(folder, ("/v1/auth?domain=mail",)) == {"mail/sender"}
