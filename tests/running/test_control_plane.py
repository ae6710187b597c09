"""ControlPlane: what the store has is put in force in the workers, in few commands."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import redis

from penstock.admin.api import AdminApi
from penstock.admin.commands import Answer, Command, apply_command
from penstock.admin.handlers import Sources
from penstock.async_gate import AsyncGate
from penstock.clock import SECOND
from penstock.control.switch_entries import key_of, value_of
from penstock.running.control_plane import BATCH, ControlPlane, SharedControl
from penstock.running.settings import Settings
from penstock.running.workers import Workers
from penstock.testing import FakeClock
from penstock.wires.http.messages import HttpRequest, HttpResponse
from stores.conftest import own_server, server_binary  # noqa: F401  # fixtures
from stores.redis_server import Server

RULES = "domain: api\ndescriptors: [{key: user, limits: 2/hour}]\n"


class CountedWorkers:
    """One gate in this process, and how many commands it got."""

    count = 1
    rejected = None

    def __init__(self) -> None:
        self.gate = AsyncGate.from_rules(RULES)
        self.commands: list[Command] = []

    async def apply(self, command: Command) -> list[Answer]:
        self.commands.append(command)
        return [await apply_command(self.gate, json.loads(json.dumps(command)))]

    async def ask(self, command: Command) -> Answer:
        return await apply_command(self.gate, command)


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    clock = FakeClock(1_700_000_000 * SECOND)
    plane = ControlPlane(Settings(), "test", clock=clock)
    yield plane
    await plane.close()


def override(user: object, **options: Any) -> Command:
    return {"do": "override", "key": "user", "value": str(user), "factor": 2.0, **options}


async def put(plane: ControlPlane, command: Command, **options: Any) -> None:
    await plane.kv.put(key_of(command), value_of(command), **options)


async def test_many_overrides_are_few_commands(plane: ControlPlane) -> None:
    workers = CountedWorkers()
    renewed = 0
    renew = workers.gate.switches._changed

    def count() -> None:
        nonlocal renewed
        renewed += 1
        assert renew is not None
        renew()

    workers.gate.switches._changed = count
    for user in range(2 * BATCH + 1):
        await put(plane, override(user))
    await plane.start(cast(Workers, workers))
    assert len(workers.gate.switches.state().overrides) == 2 * BATCH + 1
    assert [command["do"] for command in workers.commands] == ["batch"] * 3
    assert renewed == 3


async def test_the_clock_is_given(plane: ControlPlane) -> None:
    """An entry that expires by the store's clock has the rest of its time."""
    workers = CountedWorkers()
    await put(plane, override("1"), ttl="1h")
    entry = await plane.kv.get("override/user=1")
    assert entry is not None
    assert entry.expires_at is not None
    cast(FakeClock, plane._clock).set(round((entry.expires_at - 600) * SECOND))
    await plane.start(cast(Workers, workers))
    [batch] = workers.commands
    assert batch["commands"][0]["lasts"] == pytest.approx(600, abs=0.01)


async def test_one_bad_entry_does_not_keep_out_the_others(
    plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    workers = CountedWorkers()
    await put(plane, override("1"))
    await put(plane, override("2", factor=-1))
    await plane.kv.put("override/user=3", "not a switch")
    await put(plane, override("4"))
    with caplog.at_level(logging.ERROR):
        await plane.start(cast(Workers, workers))
    assert {value for _, value in workers.gate.switches.state().overrides} == {"1", "4"}
    messages = " ".join(record.getMessage() for record in caplog.records)
    assert "override/user=2 is not in force: a factor is a number above 0" in messages
    assert "'override/user=3' is no switch of Penstock" in messages


async def test_what_is_set_and_taken_back_while_it_follows(plane: ControlPlane) -> None:
    workers = CountedWorkers()
    await plane.start(cast(Workers, workers))
    assert (await plane.change(override("1")))[0]["ok"]
    assert ("user", "1") in workers.gate.switches.state().overrides
    cleared = {"do": "clear_override", "key": "user", "value": "1"}
    assert (await asyncio.wait_for(plane.change(cleared), 60))[0]["ok"]
    assert workers.gate.switches.state().overrides == {}


@pytest.mark.realtime
async def test_a_store_that_has_lost_its_data_does_not_make_changes_seem_done(
    own_server: Any,  # noqa: F811
) -> None:
    """Its revisions begin at 1 again, far below those that are in force."""
    server: Server = own_server()
    workers = CountedWorkers()
    plane = ControlPlane(Settings(control=server.url), "test")
    try:
        await plane.start(cast(Workers, workers))
        for user in range(9):
            assert (await plane.change(override(user)))[0]["ok"]
        assert (await plane.describe())["revision"] == 9
        with redis.Redis.from_url(server.url) as client:
            client.flushall()
        assert (await plane.change(override("new")))[0]["ok"]
        assert set(workers.gate.switches.state().overrides) == {("user", "new")}
        assert (await plane.describe())["revision"] == 1
    finally:
        await plane.close()


async def test_the_mode_for_all_expires_into_the_usual_one(plane: ControlPlane) -> None:
    """Also if it has replaced one that would have lasted."""
    workers = CountedWorkers()
    await plane.start(cast(Workers, workers))
    off: Command = {"do": "mode", "mode": "off", "name": None}
    assert (await plane.change(off))[0]["ok"]
    assert workers.gate.switches.state().lasting_mode == "off"
    assert (await plane.change({**off, "mode": "shadow", "lasts": "1h"}))[0]["ok"]
    state = workers.gate.switches.state()
    assert (state.mode, state.lasting_mode) == ("shadow", "enforce")
    assert state.mode_ends.keys() == {None}


async def test_who_made_a_switch_is_known_while_it_is_in_force(plane: ControlPlane) -> None:
    await plane.start(cast(Workers, CountedWorkers()))
    await plane.change(override("1", why="ticket 7"))
    note = plane.notes()["override/user=1"]
    assert (note["who"], note["why"]) == ("test", "ticket 7")
    await plane.change({"do": "clear_override", "key": "user", "value": "1"})
    assert plane.notes() == {}


async def test_a_change_says_how_long_it_lasts_and_whether_it_can_be_undone(
    plane: ControlPlane,
) -> None:
    await plane.start(cast(Workers, CountedWorkers()))
    cast(FakeClock, plane._clock).set(time.time_ns())
    await plane.change(override("1", lasts="1h"))
    await plane.change(override("1", why="more"))
    await plane.change(override("2", lasts="2h"))
    rows = (await plane.changes(10))["result"]
    assert [(row["number"], row["lasts"], row["can_undo"]) for row in rows] == [
        (3, 7200.0, True), (2, None, True), (1, 3600.0, False),
    ]  # fmt: skip
    cast(FakeClock, plane._clock).set(time.time_ns() + 7201 * SECOND)
    assert [row["can_undo"] for row in (await plane.changes(10))["result"]] == [False, True, False]
    assert "expired" in (await plane.undo(3, ""))["error"]


async def test_a_change_that_expires_before_it_is_heard_of_is_done(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.start(cast(Workers, CountedWorkers()))
    write = plane.kv.backend.write

    def write_and_stall(*args: Any) -> Any:
        written = yield from write(*args)
        time.sleep(0.02)  # it has expired before this process's own mirror knows it
        cast(FakeClock, plane._clock).set(time.time_ns())
        return written

    monkeypatch.setattr(plane.kv.backend, "write", write_and_stall)
    assert (await asyncio.wait_for(plane.change(override("1", lasts="1ms")), 4))[0]["ok"]


async def test_of_two_operators_the_second_is_told(plane: ControlPlane) -> None:
    """Through the admin API: ``expect`` is the number of the change that was seen."""
    await plane.start(cast(Workers, workers := CountedWorkers()))
    sources = Sources(changes=plane.changes, undo=plane.undo)
    api = AdminApi(SharedControl(cast(Workers, workers), plane), sources=sources)

    async def ask(method: str, path: str, query: str = "", **body: Any) -> tuple[int, Any]:
        request = HttpRequest("127.0.0.1")
        request.raw = [(b"host", b"localhost")]
        request.method, request.path, request.query = method, path, query
        request.body = json.dumps(body).encode() if body else b""
        response = api(request)
        if not isinstance(response, HttpResponse):
            response = await response
        return response.status, json.loads(response.body)

    async def last() -> int:
        _, answer = await ask("GET", "/v1/changes")
        return int(answer["changes"][0]["number"])

    pair: dict[str, Any] = {"key": "user", "value": "1"}
    cases: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
        ("/v1/overrides", {**pair, "factor": 2}, {**pair, "factor": 3}, "key=user&value=1",
         "override/user=1"),
        ("/v1/mode", {"mode": "off"}, {"mode": "shadow"}, "", "switch/all"),
        ("/v1/mode", {"mode": "off", "name": "api/user"}, {"mode": "shadow", "name": "api/user"},
         "name=api/user", "switch/rule/api/user"),
        ("/v1/deny", {"key": "user", "entry": "9"}, {"key": "user", "entry": "9", "lasts": "1h"},
         "key=user&entry=9", "deny/user=9"),
    ]  # fmt: skip
    for path, first, second, query, key in cases:
        assert (await ask("PUT", path, **first, expect=0))[0] == 200
        seen = await last()
        assert await ask("PUT", path, **second, expect=0) == (
            409, {"error": f"{key} is at change {seen}, not at 0: see /v1/changes"}
        )  # fmt: skip
        assert (await ask("PUT", path, **second, expect=seen))[0] == 200
        status, answer = await ask("DELETE", path, f"{query}&expect={seen}".lstrip("&"))
        assert (status, f"not at {seen}" in answer["error"]) == (409, True)
        query = f"{query}&expect={await last()}".lstrip("&")
        assert (await ask("DELETE", path, query))[0] == 200
        status, answer = await ask("PUT", path, **first, expect=seen)
        assert answer == {"error": f"{key} is not set, not at {seen}: see /v1/changes"}
    assert workers.gate.switches.calm
