"""A single worker in this process reloads as several do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")

from penstock.errors import UnsupportedLimit
from penstock.running.rules_in_force import GateRules, read_rules
from penstock.running.settings import Settings
from penstock.running.worker import Worker
from penstock.running.workers import Workers

RULES = "domain: api\ndescriptors:\n  - {key: user, limits: 5/hour}\n"


def workers_of(settings: Settings, worker: Worker) -> Workers:
    return Workers(settings, {}, [worker], GateRules(settings, worker.gate))


@pytest.fixture
async def single(tmp_path: Path) -> Any:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    settings = Settings(rules=(str(file),), grpc="off")
    worker = Worker(settings, "memory", "0", None, read_rules(settings))
    yield workers_of(settings, worker), worker, file
    await worker.drain(0)


async def test_rules_are_reloaded(single: Any) -> None:
    workers, worker, file = single
    file.write_text(RULES.replace("5/hour", "6/hour"))
    assert await workers.apply({"do": "reload"}) == [{"ok": True, "result": None}]
    assert "6/hour" in repr(worker.gate.rules)
    assert workers.loaded() == worker.gate.rules.digests == read_rules(workers._settings).digests


async def test_wrong_files_change_nothing(single: Any) -> None:
    workers, worker, file = single
    file.write_text("domain: api\ndescriptors: 5\n")
    (answer,) = await workers.apply({"do": "reload"})
    assert (answer["ok"], answer["status"]) == (False, 422)
    assert answer["problems"]
    assert "5/hour" in repr(worker.gate.rules)
    assert worker.recorder.snapshot().get("penstock_rules_ok") == 0


async def test_a_limit_that_the_store_cannot_count_by_is_a_veto(
    single: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, worker, file = single
    counters = type(worker.store).counters

    def count(store: Any, limit: Any) -> Any:
        if "9/hour" in str(limit):
            raise UnsupportedLimit("not this one")
        return counters(store, limit)

    monkeypatch.setattr(type(worker.store), "counters", count)
    file.write_text(RULES.replace("5/hour", "9/hour"))
    (answer,) = await workers.apply({"do": "reload"})
    assert answer["status"] == 422
    assert answer["error"] == "worker 0 cannot use the new rules: rule api/user: not this one"
    assert "5/hour" in repr(worker.gate.rules)


async def test_without_files_there_is_nothing_to_reload() -> None:
    settings = Settings(grpc="off")
    worker = Worker(settings, "memory", "0", None, read_rules(settings))
    (answer,) = await workers_of(settings, worker).apply({"do": "reload"})
    assert (answer["status"], "--rules" in answer["error"]) == (422, True)
    await worker.drain(0)
