"""What operators see of rules with ``concurrency``, and how they free slots."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from penstock import AsyncGate, MemoryStore
from penstock.admin import counters, dumps
from penstock.admin.openapi import document
from penstock.testing import FakeClock

STEP = {"key": "user", "limits": "100/hour", "concurrency": 2, "cost": 5}
COMMAND: dict[str, Any] = {"descriptors": [[["user", "42"]]]}


def rules(concurrency: int) -> dict[str, Any]:
    return {"domain": "api", "descriptors": [{**STEP, "concurrency": concurrency}]}


@pytest.fixture
def gate() -> AsyncGate:
    clock = FakeClock()
    gate = AsyncGate.from_rules(rules(2), MemoryStore(clock=clock), clock=clock)
    for _ in range(2):
        assert gate.check_now({"user": "42"})
    return gate


def test_the_rule(gate: AsyncGate) -> None:
    (rule,) = dumps.rules(gate)["domains"][0]["rules"]
    name = "api/user concurrency"
    assert rule["concurrency"] == {"name": name, "slots": 2, "slot_lease": 30.0, "switched": None}
    assert "limits=100/hour concurrency=2 slot_lease=30s" in rule["line"]
    gate.replace({"domain": "api", "descriptors": [{"key": "user", "concurrency": 7}]})
    (rule,) = dumps.rules(gate)["domains"][0]["rules"]
    assert rule["line"].startswith("api/user: concurrency=7 slot_lease=30s, shadow_mode")


def test_the_dump_fits_the_document(gate: AsyncGate) -> None:
    described: Any = document()
    schema = {**described["components"]["schemas"]["Rules"], **described}
    jsonschema.validate(json.loads(json.dumps(dumps.rules(gate))), schema)


async def test_how_many_are_in_use(gate: AsyncGate) -> None:
    (row,) = await counters.look(gate, COMMAND)
    assert [(limit["name"], limit["remaining"]) for limit in row["limits"]] == [
        ("api/user 100/hour", 90),
        ("api/user concurrency", 0),
    ]


async def test_a_refund_is_about_rates_and_a_reset_frees_slots(gate: AsyncGate) -> None:
    changed = await counters.refund(gate, COMMAND)
    assert [limit["remaining"] for limit in changed["after"][0]["limits"]] == [95, 0]
    gate.replace(rules(3))
    assert gate.check_now({"user": "42"})
    assert not gate.check_now({"user": "42"})
    await counters.reset(gate, {**COMMAND, "limit": "api/user concurrency"})
    assert [bool(gate.check_now({"user": "42"})) for _ in range(4)] == [True] * 3 + [False]
