"""The supervisor's part in what a new worker knows: moments that real processes rarely hit."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")

from penstock.rules.model import RuleSet
from penstock.running.fleet import Answer, Command, read_rules
from penstock.running.settings import Settings
from penstock.running.supervisor import Process, Supervised
from penstock.running.worker import Sockets

RULES = "domain: api\ndescriptors:\n  - {key: user, limits: 5/hour}\n"
DENY: Command = {"do": "list", "which": "deny", "key": "ip", "entry": "192.0.2.1", "lasts": None}


class Worker(Process):
    """A process that takes its time to start, and notes what it is told."""

    def __init__(self, number: int) -> None:
        super().__init__(number, Settings(), "memory", None, Sockets())
        self.go_on = asyncio.Event()
        self.begun = asyncio.Event()
        self.there = False
        self.rules = b""
        self.told: list[Command] = []

    async def start(self, rules: bytes, switched: list[Command]) -> None:
        self.missed.clear()
        self.rules, self.told = rules, list(switched)
        self.begun.set()
        await self.go_on.wait()
        self.there = True

    async def apply(self, command: Command, timeout: float = 10.0) -> Answer:
        if not self.there:
            return {"ok": False, "status": 503, "error": "not there", "away": True}
        self.told.append(command)
        return {"ok": True, "result": None}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "rules.yaml"
    made.write_text(RULES)
    return made


async def supervised(file: Path, **options: Any) -> tuple[Supervised, Worker, Worker]:
    """The first is there, the second is being started."""
    settings = Settings(rules=(str(file),), workers=2, **options)
    first, second = Worker(0), Worker(1)
    fleet = Supervised(settings, {}, [first, second], read_rules(settings))
    first.there = True
    return fleet, first, second


async def test_what_is_switched_while_a_worker_starts_is_told_to_it_in_order(file: Path) -> None:
    fleet, first, second = await supervised(file)
    await fleet.apply(DENY)
    starting = asyncio.create_task(fleet._start(second))
    await second.begun.wait()
    later = [
        {"do": "mode", "mode": "off", "name": None},
        {"do": "mode", "mode": "shadow", "name": None},
    ]
    for command in later:
        assert [answer["ok"] for answer in await fleet.apply(command)] == [True, True]
    second.go_on.set()
    await starting
    assert first.told == [DENY, *later]
    assert [command for command in second.told if command["do"] == "list"] == [DENY]
    assert second.told[-2:] == later
    # The next one is told where they led to.
    third = Worker(1)
    third.go_on.set()
    await fleet._start(third)
    assert {"do": "mode", "mode": "shadow", "name": None} in third.told
    assert later[0] not in third.told


async def test_a_reload_while_a_worker_starts_is_told_to_it(file: Path) -> None:
    fleet, _, second = await supervised(file)
    starting = asyncio.create_task(fleet._start(second))
    await second.begun.wait()
    file.write_text(RULES.replace("5/hour", "6/hour"))
    assert await fleet.reload()
    second.go_on.set()
    await starting
    assert [command["do"] for command in second.told][-2:] == ["reload", "reload_tls"]


async def test_new_workers_get_the_last_good_rules(file: Path) -> None:
    fleet, _, second = await supervised(file)
    second.there = True
    file.write_text(RULES.replace("5/hour", "6/hour"))
    await fleet.reload()
    file.write_text("broken: [")
    second.go_on.set()
    await fleet._start(second)
    found, lineage = pickle.loads(second.rules)
    assert isinstance(found, RuleSet)
    assert "6/hour" in repr(found)
    # And what the limits were before, so that they take over what was used of those.
    (ancestors,) = lineage.ancestors.values()
    assert [str(each.limit) for each in ancestors] == ["5/hour"]


async def test_what_no_worker_takes_is_not_told_to_the_next(file: Path) -> None:
    fleet, first, second = await supervised(file)

    async def refuse(command: Command, timeout: float = 10.0) -> Answer:
        return {"ok": False, "status": 400, "error": "no"}

    first.apply = second.apply = refuse  # type: ignore[method-assign]  # as a worker would
    assert [answer["ok"] for answer in await fleet.apply(DENY)] == [False, False]
    third = Worker(1)
    third.go_on.set()
    await fleet._start(third)
    assert DENY not in third.told


async def test_the_mode_is_told_also_if_it_is_the_ordinary_one(file: Path) -> None:
    """A worker that is started with --shadow would else stay so."""
    fleet, _, _ = await supervised(file, shadow=True)
    assert fleet._to_tell()[0] == {"do": "mode", "mode": "shadow", "name": None}
    await fleet.apply({"do": "mode", "mode": "enforce", "name": None})
    assert fleet._to_tell()[0] == {"do": "mode", "mode": "enforce", "name": None}
