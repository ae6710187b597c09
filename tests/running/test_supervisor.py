"""The supervisor: what a new worker knows, and reloads in two phases.

Real processes rarely hit these moments; `e2e/test_reload.py` has those that they can be made to.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")

from penstock.admin.commands import Answer, Command
from penstock.rules.model import RuleSet
from penstock.running import reload as reload_module
from penstock.running.rules_in_force import read_rules
from penstock.running.settings import Settings
from penstock.running.supervisor import SupervisedWorkers
from running.fake_processes import FakeProcess

RULES = "domain: api\ndescriptors:\n  - {key: user, limits: 5/hour}\n"
NEW_RULES = RULES.replace("5/hour", "6/hour")
DENY: Command = {"do": "list", "which": "deny", "key": "ip", "entry": "192.0.2.1", "lasts": None}
VETO: Answer = {"ok": False, "status": 422, "error": "rule api/user: it needs longer rows"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


class Kit:
    """Two workers: the first is ready, the second is being started."""

    def __init__(self, file: Path, **options: Any) -> None:
        settings = Settings(rules=(str(file),), workers=2, **options)
        self.first, self.second = FakeProcess(0), FakeProcess(1)
        self.processes = [self.first, self.second]
        self.workers = SupervisedWorkers(settings, {}, [*self.processes], read_rules(settings))
        self.first.be_ready(self.workers.rules.pickled)

    def both_ready(self) -> None:
        self.second.be_ready(self.workers.rules.pickled)

    async def start_again(self, process: FakeProcess) -> None:
        process.go_on.set()
        await self.workers._start(process)

    def limits(self) -> list[str]:
        return [limit_of(process.deciding_by) for process in self.processes]


def limit_of(rules: RuleSet | None) -> str:
    assert rules is not None
    rule = rules.domains["api"].steps[0].rule
    assert rule is not None
    return str(rule.limits[0].limit)


@pytest.fixture
async def kit(file: Path) -> Any:
    kit = Kit(file)
    yield kit
    for process in kit.processes:
        process.close()


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    logger = logging.getLogger("penstock")
    before = logger.propagate
    logger.propagate = True
    caplog.set_level("INFO", "penstock")
    yield
    logger.propagate = before


# New workers ------------------------------------------------------------------------------------


async def test_what_is_switched_while_a_worker_starts_is_told_to_it_in_order(kit: Kit) -> None:
    await kit.workers.apply(DENY)
    starting = asyncio.create_task(kit.workers._start(kit.second))
    await kit.second.begun.wait()
    later = [
        {"do": "mode", "mode": "off", "name": None},
        {"do": "mode", "mode": "shadow", "name": None},
    ]
    for command in later:
        assert [answer["ok"] for answer in await kit.workers.apply(command)] == [True, True]
    kit.second.go_on.set()
    await starting
    assert kit.first.commands == [DENY, *later]
    assert [command for command in kit.second.commands if command["do"] == "list"] == [DENY]
    assert kit.second.commands[-2:] == later
    # The next one is told where they led to.
    await kit.start_again(kit.second)
    assert {"do": "mode", "mode": "shadow", "name": None} in kit.second.commands
    assert later[0] not in kit.second.commands


async def test_what_no_worker_takes_is_not_told_to_the_next(kit: Kit) -> None:
    kit.both_ready()
    for process in kit.processes:
        process.behaviours["list"] = lambda: {"ok": False, "status": 400, "error": "no"}
    assert [answer["ok"] for answer in await kit.workers.apply(DENY)] == [False, False]
    await kit.start_again(kit.second)
    assert DENY not in kit.second.commands


async def test_the_mode_is_told_also_if_it_is_the_ordinary_one(file: Path) -> None:
    """Otherwise a worker that is started with --shadow would stay in shadow."""
    kit = Kit(file, shadow=True)
    kit.both_ready()
    assert kit.workers._switch_commands()[0] == {"do": "mode", "mode": "shadow", "name": None}
    await kit.workers.apply({"do": "mode", "mode": "enforce", "name": None})
    assert kit.workers._switch_commands()[0] == {"do": "mode", "mode": "enforce", "name": None}
    for process in kit.processes:
        process.close()


async def test_new_workers_get_the_rules_in_force_not_those_in_the_file(
    kit: Kit, file: Path
) -> None:
    kit.both_ready()
    file.write_text(NEW_RULES)
    assert await kit.workers.reload()
    file.write_text("broken: [")
    await kit.start_again(kit.second)
    rules, lineage = pickle.loads(kit.second.started_with)
    assert limit_of(rules) == "6/hour"
    # And what the limits were before, so that they take over what was used of those.
    (ancestors,) = lineage.ancestors.values()
    assert [str(each.limit) for each in ancestors] == ["5/hour"]


# Reloads ----------------------------------------------------------------------------------------


async def test_all_prepare_before_one_swaps(
    kit: Kit, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kit.both_ready()
    may_prepare = asyncio.Event()

    async def prepare_later() -> Answer:
        await may_prepare.wait()
        kit.second.receive()
        return {"ok": True, "result": None}

    kit.second.behaviours["prepare_rules"] = prepare_later
    file.write_text(NEW_RULES + "  - {key: ip, limits: 1/second}\n")
    reloading = asyncio.create_task(kit.workers.reload_rules())
    while "prepare_rules" not in kit.first.verbs():
        await asyncio.sleep(0.001)
    assert kit.limits() == ["5/hour", "5/hour"]
    assert "swap_rules" not in kit.first.verbs()
    file.write_text("broken: [")  # too late: it was read once
    may_prepare.set()
    assert await reloading == [{"ok": True, "result": None}] * 2
    assert kit.limits() == ["6/hour", "6/hour"]
    assert "rules reloaded: 1 added (api/ip), 1 changed (api/user), none removed" in caplog.text


async def test_a_veto_is_for_all(kit: Kit, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    kit.both_ready()
    digests = kit.workers.loaded()

    def veto() -> Answer:
        kit.second.receive()
        return VETO

    kit.second.behaviours["prepare_rules"] = veto
    file.write_text(NEW_RULES)
    answers = await kit.workers.reload_rules()
    assert [answer["status"] for answer in answers] == [422, 422]
    error = "worker 1 cannot use the new rules: rule api/user: it needs longer rows"
    assert answers[0]["error"] == error
    assert error in caplog.text
    assert kit.limits() == ["5/hour", "5/hour"]
    assert kit.first.commands[-1] == {"do": "reject_rules", "reason": error}
    assert not kit.first.kills + kit.second.kills
    # Nor does a new worker get them.
    await kit.start_again(kit.second)
    assert kit.limits() == ["5/hour", "5/hour"]
    assert kit.workers.loaded() == digests


async def test_a_file_that_is_wrong_reaches_no_worker(kit: Kit, file: Path) -> None:
    kit.both_ready()
    file.write_text("domain: api\ndescriptors: 5\n")
    answers = await kit.workers.reload_rules()
    assert [answer["status"] for answer in answers] == [422, 422]
    assert "rules.yaml:2" in answers[0]["problems"][0]
    assert kit.first.verbs() == kit.second.verbs() == ["reject_rules"]


async def test_a_worker_that_dies_while_it_prepares_is_no_veto(kit: Kit, file: Path) -> None:
    kit.both_ready()

    def die() -> Answer:
        raise ConnectionError

    kit.second.behaviours["prepare_rules"] = die
    file.write_text(NEW_RULES)
    assert [answer["ok"] for answer in await kit.workers.reload_rules()] == [True, True]
    assert limit_of(kit.first.deciding_by) == "6/hour"
    await kit.start_again(kit.second)
    assert limit_of(pickle.loads(kit.second.started_with)[0]) == "6/hour"


@pytest.mark.parametrize("verb", ["prepare_rules", "swap_rules"])
async def test_a_worker_that_hangs_is_killed_and_gets_the_rules_in_force(
    verb: str, kit: Kit, file: Path
) -> None:
    kit.both_ready()

    def hang() -> Answer:
        raise TimeoutError

    kit.second.behaviours[verb] = hang
    file.write_text(NEW_RULES)
    assert [answer["ok"] for answer in await kit.workers.reload_rules()] == [True, True]
    assert (kit.first.kills, kit.second.kills) == (0, 1)
    assert limit_of(kit.first.deciding_by) == "6/hour"
    await kit.start_again(kit.second)
    assert limit_of(pickle.loads(kit.second.started_with)[0]) == "6/hour"


async def test_a_worker_that_starts_during_a_reload_catches_up(kit: Kit, file: Path) -> None:
    starting = asyncio.create_task(kit.workers._start(kit.second))
    await kit.second.begun.wait()
    file.write_text(NEW_RULES)
    assert await kit.workers.reload()
    kit.second.go_on.set()
    await starting
    assert limit_of(pickle.loads(kit.second.started_with)[0]) == "5/hour"
    assert kit.limits() == ["6/hour", "6/hour"]
    assert kit.second.verbs()[-3:] == ["reload_tls", "prepare_rules", "swap_rules"]


async def test_a_worker_that_is_started_again_between_the_phases_catches_up(
    kit: Kit, file: Path
) -> None:
    kit.both_ready()
    kit.second.go_on.set()
    restarted: list[asyncio.Task[None]] = []

    async def prepare_after_a_restart() -> Answer:
        """The second has prepared, dies and comes back, all before the first is done."""
        kit.first.receive()
        while kit.second._prepared is None:
            await asyncio.sleep(0.001)
        await kit.second.kill()
        restarted.append(asyncio.create_task(kit.workers._start(kit.second)))
        while not kit.second.rules:
            await asyncio.sleep(0.001)
        return {"ok": True, "result": None}

    kit.first.behaviours["prepare_rules"] = prepare_after_a_restart
    file.write_text(NEW_RULES)
    assert [answer["ok"] for answer in await kit.workers.reload_rules()] == [True, True]
    await restarted[0]
    assert limit_of(pickle.loads(kit.second.started_with)[0]) == "5/hour"
    assert kit.limits() == ["6/hour", "6/hour"]
    assert kit.second.kills == 1


async def test_without_any_worker_nobody_vouches_for_the_rules(
    kit: Kit, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload_module, "NO_WORKER", 0.01)
    await kit.first.kill()
    file.write_text(NEW_RULES)
    answers = await kit.workers.reload_rules()
    assert [answer["status"] for answer in answers] == [503, 503]
    await kit.start_again(kit.second)
    assert limit_of(kit.second.deciding_by) == "5/hour"


async def test_a_reload_waits_for_a_worker_to_come_back(kit: Kit, file: Path) -> None:
    await kit.first.kill()
    file.write_text(NEW_RULES)
    reloading = asyncio.create_task(kit.workers.reload_rules())
    await kit.start_again(kit.second)
    assert [answer["ok"] for answer in await reloading] == [True, True]
    assert limit_of(kit.second.deciding_by) == "6/hour"


async def test_one_reload_after_the_other(kit: Kit, file: Path) -> None:
    kit.both_ready()
    file.write_text(NEW_RULES)
    first = asyncio.create_task(kit.workers.reload_rules())
    second = asyncio.create_task(kit.workers.reload_rules())
    assert all(answer["ok"] for answer in (*await first, *await second))
    assert kit.first.verbs() == ["prepare_rules", "swap_rules"] * 2
