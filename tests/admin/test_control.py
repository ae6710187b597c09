"""Commands reach every worker, as plain JSON, and a new worker gets to where the others are."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from admin.conftest import RULES, Start
from penstock.admin.commands import (
    VERBS,
    Answer,
    Command,
    apply_command,
    check_switch,
    commands_of,
)
from penstock.admin.control import LocalControl
from penstock.async_gate import AsyncGate
from penstock.gate import Gate
from penstock.stores.memory import MemoryStore
from penstock.stores.redis import RedisStore
from penstock.stores.shared import SharedMemoryStore
from penstock.testing import FakeClock
from stores.redis_server import NO_SERVER, running_server


class ManyGates:
    """Workers over one shared store; what passes between them is bytes of JSON."""

    def __init__(self, folder: Path, clock: FakeClock, count: int = 3) -> None:
        self.stores = [SharedMemoryStore(folder / "limits", clock=clock) for _ in range(count)]
        self.gates = [
            AsyncGate.from_file(folder / "rules.yaml", store=store, clock=clock)
            for store in self.stores
        ]
        self.turn = 0

    async def apply(self, command: Command) -> list[Answer]:
        return [await self._at(gate, command) for gate in self.gates]

    async def ask(self, command: Command) -> Answer:
        self.turn += 1
        return await self._at(self.gates[self.turn % len(self.gates)], command)

    async def _at(self, gate: Gate, command: Command) -> Answer:
        answer = await apply_command(gate, json.loads(json.dumps(command)))
        copied: Answer = json.loads(json.dumps(answer))
        return copied

    def close(self) -> None:
        for store in self.stores:
            store.close()


async def test_changes_reach_all_workers(start: Start) -> None:
    site = await start()
    many = ManyGates(site.rules.parent, site.clock)
    site.api._handlers._control = many
    for path, body in (
        ("/v1/mode", {"mode": "shadow"}),
        ("/v1/mode", {"mode": "off", "name": "api/user"}),
        ("/v1/overrides", {"key": "user", "value": "1", "factor": 3, "lasts": "1h"}),
        ("/v1/allow", {"key": "ip", "entry": "192.0.2.0/24"}),
        ("/v1/deny", {"key": "ip", "entry": "198.51.100.1", "lasts": "10s"}),
    ):
        done = await site.ask("PUT", path, body)
        assert done.json()["workers"] == 3
    states = [gate.switches.state() for gate in many.gates]
    for state in states:
        assert (state.mode, state.modes) == ("shadow", {"api/user": "off"})
        assert state.overrides == states[0].overrides
        assert (state.allow, state.deny) == (states[0].allow, states[0].deny)
        assert len(state.overrides) == len(state.allow) == len(state.deny) == 1
    site.rules.write_text(RULES.replace("100/hour", "7/hour"))
    assert (await site.ask("POST", "/v1/rules/reload")).json()["workers"] == 3
    assert all("7/hour" in str(gate.rules) for gate in many.gates)
    many.close()


async def test_counters_may_be_asked_of_any_worker(start: Start) -> None:
    site = await start()
    many = ManyGates(site.rules.parent, site.clock)
    site.api._handlers._control = many
    for gate in many.gates:
        await gate.check({"user": "42"})
    for _ in range(4):
        response = await site.ask("GET", "/v1/counters?descriptor=user=42")
        assert response.json()["counters"][0]["limits"][1]["remaining"] == 97
    await site.ask("POST", "/v1/counters/reset", {"descriptors": [{"user": "42"}]})
    for gate in many.gates:
        look = await apply_command(gate, {"do": "counters", "descriptors": [[["user", "42"]]]})
        assert look["result"][0]["limits"][1]["remaining"] == 100
    many.close()


async def test_wrong_input_is_sent_to_nobody(start: Start) -> None:
    site = await start()
    sent: list[Command] = []

    class Watched(LocalControl):
        async def apply(self, command: Command) -> list[Answer]:
            sent.append(command)
            return await super().apply(command)

    site.api._handlers._control = Watched(site.gate)
    for path, body in (
        ("/v1/mode", {"mode": "no"}),
        ("/v1/mode", {"mode": "off", "name": "nope"}),
        ("/v1/overrides", {"key": "user", "value": "1", "limit": "lots"}),
        ("/v1/overrides", {"key": "user", "value": "1", "factor": 2, "lasts": "soon"}),
        ("/v1/allow", {"key": "ip", "entry": "10.0.0.0/99"}),
        ("/v1/log-level", {"level": "loud"}),
    ):
        assert (await site.ask("PUT", path, body)).status_code in (400, 404)
    assert sent == []


SWITCHES: list[Command] = [
    {"do": "mode", "mode": "shadow", "name": None},
    {"do": "mode", "mode": "off", "name": "api/user"},
    {"do": "mode", "mode": "enforce", "name": "by_hour"},
    {"do": "override", "key": "user", "value": "1", "factor": 0.5, "lasts": "1h"},
    {"do": "override", "key": "user", "value": "2", "limit": "5/minute burst 9", "lasts": None},
    {"do": "list", "which": "allow", "key": "ip", "entry": "192.0.2.0/24", "lasts": "1h"},
    {"do": "list", "which": "deny", "key": "ip", "entry": "198.51.100.1", "lasts": None},
]


async def test_a_worker_that_starts_later_gets_what_is_left(our_loggers: None) -> None:
    clock = FakeClock()
    old = AsyncGate.from_rules(RULES, MemoryStore(clock=clock), clock=clock)
    for command in SWITCHES:
        assert (await apply_command(old, command))["ok"]
    clock.advance(1800)
    new = AsyncGate.from_rules(RULES, MemoryStore(clock=clock), clock=clock)
    for command in json.loads(json.dumps(commands_of(old))):
        assert (await apply_command(new, command))["ok"]
    for name in ("mode", "modes", "overrides", "allow", "deny"):
        assert getattr(new.switches.state(), name) == getattr(old.switches.state(), name)
    clock.advance(1801)
    assert len(new.switches.state().overrides) == 1
    assert not new.switches.state().allow
    calm = AsyncGate.from_rules(RULES, clock=clock)
    assert [command["do"] for command in commands_of(calm)] == ["log_level"]


@pytest.mark.parametrize(
    ("command", "status", "error"),
    [
        ({"do": "nothing"}, 400, "unknown command 'nothing'"),
        ({}, 400, "do"),
        ({"do": "mode", "mode": "loud"}, 400, "a mode is one of"),
        ({"do": "override", "key": "user"}, 400, "value"),
        ({"do": "clear_list", "which": "grey", "key": "a", "entry": "b"}, 400, "allow and deny"),
        ({"do": "reload"}, 422, "did not come from files"),
        ({"do": "log_level", "level": "loud"}, 400, "a log level"),
        ({"do": "counters", "descriptors": [[["user"]]]}, 400, "not enough values"),
        ({"do": "refund", "descriptors": [[["user", "1"]]], "hits": 0}, 400, "at least 1"),
    ],
)
async def test_a_command_never_raises(command: Command, status: int, error: str) -> None:
    answer = await apply_command(Gate.from_rules(RULES), command)
    assert (answer["ok"], answer["status"]) == (False, status)
    assert error in answer["error"]


async def test_what_nobody_expected_is_an_answer_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(gate: Gate, command: Command) -> Any:
        raise RuntimeError("secret detail")

    monkeypatch.setitem(VERBS, "level", fails)
    answer = await apply_command(Gate.from_rules(RULES), {"do": "level"})
    assert answer == {"ok": False, "status": 500, "error": "internal error: see the log"}
    assert "secret detail" in caplog.text


async def test_a_sync_gate_will_do() -> None:
    gate = Gate.from_rules(RULES, MemoryStore(clock=FakeClock()))
    gate.check({"user": "42"})
    look = await apply_command(gate, {"do": "counters", "descriptors": [[["user", "42"]]]})
    assert [each["remaining"] for each in look["result"][0]["limits"]] == [4, 99]


@pytest.mark.parametrize("command", SWITCHES, ids=lambda command: str(command["do"]))
def test_what_is_right_passes_the_check(command: Command) -> None:
    check_switch(command)


async def test_counters_in_redis_and_when_it_is_gone() -> None:
    with running_server() as url:
        if url is None:
            pytest.skip(NO_SERVER)
        store = RedisStore(url, deadline="2s")
        gate = AsyncGate.from_rules(RULES, store)
        ask = {"do": "counters", "descriptors": [[["user", "42"]]]}
        for _ in range(3):
            await gate.check({"user": "42"})
        look = await apply_command(gate, ask)
        assert look["result"][0]["limits"][1]["remaining"] == 97
        back = await apply_command(gate, {**ask, "do": "refund", "hits": 2})
        assert back["result"]["after"][0]["limits"][1]["remaining"] == 99
        done = await apply_command(gate, {**ask, "do": "reset"})
        assert done["result"]["after"][0]["limits"][1]["remaining"] == 100
    answer = await asyncio.wait_for(apply_command(gate, {**ask, "do": "reset"}), 60)
    assert (answer["ok"], answer["status"]) == (False, 503)
    look = await asyncio.wait_for(apply_command(gate, ask), 60)
    assert look["result"][0]["limits"][0]["degraded"] is True
    store.close()


async def test_a_new_worker_holds_an_override_as_the_others_do(tmp_path: Path) -> None:
    """Also where a reload has made it impossible in some of the rules."""
    text = """
    domain: api
    descriptors:
      - {key: user, limits: 5/minute sliding_log}
      - {key: plan, descriptors: [{key: user, limits: 5/hour}]}
    """
    with SharedMemoryStore(tmp_path / "limits", bytes_per_key=256) as store:
        old = AsyncGate.from_rules(text, store)
        command = {"do": "override", "key": "user", "value": "1", "factor": 2}
        assert (await apply_command(old, command))["ok"]
        old.replace(text.replace("5/minute", "9/minute"))
        new = AsyncGate.from_rules(text.replace("5/minute", "9/minute"), store)
        refused = await apply_command(new, command)
        assert (refused["ok"], refused["status"]) == (False, 400)
        for each in commands_of(old):
            assert (await apply_command(new, each))["ok"]
        assert new.switches.state().overrides.keys() == old.switches.state().overrides.keys()
        verdict = await new.check({"plan": "x", "user": "1"})
        assert verdict.decision.remaining == 9


async def test_a_typo_in_a_key_is_refused(start: Start) -> None:
    """Also in an application that has the admin API inside (`LocalControl`)."""
    site = await start()
    for path, body in (
        ("/v1/overrides", {"key": "usr", "value": "1", "factor": 3}),
        ("/v1/allow", {"key": "usr", "entry": "1"}),
        ("/v1/deny", {"key": "usr", "entry": "1"}),
    ):
        refused = await site.ask("PUT", path, body)
        assert refused.status_code == 400
        assert refused.json()["error"] == "no rule has the key 'usr' (did you mean 'user'?)"
    far = await site.ask("PUT", "/v1/overrides", {"key": "country", "value": "x", "factor": 3})
    assert far.json()["error"] == (
        "no rule has the key 'country': the keys are batch, open, plan, user"
    )
    # A list applies to every descriptor: a key without a rule is no error.
    assert (
        await site.ask("PUT", "/v1/deny", {"key": "ip", "entry": "192.0.2.1"})
    ).status_code == 200
    state = site.gate.switches.state()
    assert (dict(state.overrides), dict(state.allow), list(state.deny)) == ({}, {}, ["ip"])


async def test_a_mode_lasts_as_long_as_asked(start: Start) -> None:
    site = await start()
    await site.ask("PUT", "/v1/mode", {"mode": "off", "lasts": "10s"})
    await site.ask("PUT", "/v1/mode", {"mode": "shadow", "name": "api/user", "lasts": 5})
    fresh = AsyncGate.from_file(site.rules, clock=site.clock)
    for command in json.loads(json.dumps(commands_of(site.gate))):
        assert (await apply_command(fresh, command))["ok"]
    assert fresh.switches.state() == site.gate.switches.state()
    site.clock.advance(5)
    switches = (await site.ask("GET", "/v1/switches")).json()
    assert (switches["mode"], switches["modes"]) == ("off", {})
    site.clock.advance(5)
    assert (await site.ask("GET", "/v1/switches")).json()["mode"] == "enforce"
    bad = await site.ask("PUT", "/v1/mode", {"mode": "off", "lasts": "soon"})
    assert bad.status_code == 400


async def test_expect_is_refused_without_a_history(start: Start) -> None:
    site = await start()
    body = {"key": "user", "value": "1", "factor": 3, "expect": 0}
    refused = await site.ask("PUT", "/v1/overrides", body)
    assert refused.status_code == 501
    assert "expect needs a history of changes" in refused.json()["error"]
    assert site.gate.switches.calm
