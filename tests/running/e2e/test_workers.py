"""Workers that are killed: under load, with switches, and with files that are broken by then."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.wires.grpc import h2
from running.e2e.conftest import Start
from running.e2e.loading import HttpConnection, Load, owner
from running.e2e.running import PATIENCE, Penstock, ask, new_folder
from stores.redis_server import wait_until

LIMIT = 1500
# A window of a year: nothing comes back while the test runs.
RULES = f"""
domain: api
descriptors:
  - key: user
    rate_limit: {{unit: year, requests_per_unit: {LIMIT}}}
  - key: other
    limits: 1000/second
"""


def replaced(service: Penstock, victim: int) -> bool:
    workers = service.workers
    return len(workers) == 2 and victim not in workers and b'"healthy":true' in ask(
        service.admin, "/v1/health"
    ).body  # fmt: skip


async def connected_to(service: Penstock, pid: int) -> HttpConnection:
    """A new connection that this process has accepted; the kernel chooses who does."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        connection = await HttpConnection.open(service.http)
        await connection.check({"nobody": "counts this"})
        if owner(service, connection.port) == pid:
            return connection
        await connection.close()
    raise AssertionError(f"process {pid} takes no connections:\n{service.log}")


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(
            "nghttp2",
            marks=pytest.mark.skipif(not h2.available(), reason="the extension was not built"),
        ),
        "grpcio",
    ],
)
async def test_a_worker_is_killed_under_load(wire: str, penstock_service: Start) -> None:
    service = penstock_service(RULES, "--workers", "2", "--wire", wire)
    load = Load(service, "api", {"user": "42"})
    async with load.running(http=12, grpcs=6):
        await load.until(LIMIT // 4)
        owners = {name: owner(service, each.port) for name, each in load.http.items()}
        victim = owners["http-0"]
        assert victim is not None
        assert set(owners.values()) == set(service.workers), "both have connections"
        before = dict(load.answered)
        os.kill(victim, signal.SIGKILL)
        await load.until(LIMIT)
        await asyncio.to_thread(
            wait_until, lambda: replaced(service, victim), "a new worker", PATIENCE
        )
        await load.until(LIMIT // 2)

    assert not load.wrong
    # Who was with the other noticed nothing; who was with this one lost one request at most.
    for name, pid in owners.items():
        assert len(load.lost.get(name, ())) <= (pid == victim), load.lost
    assert all(len(lost) == 1 for lost in load.lost.values()), json.dumps(load.lost)
    assert load.lost
    # All were served again.
    assert all(load.answered[name] > before.get(name, 0) for name in load.answered)
    # Exactly as many as the limit: those seen, and at most those whose answer was lost.
    assert LIMIT - len(load.lost) <= load.allowed <= LIMIT
    assert load.refused > 0

    # The new one counts where the others do.
    (newcomer,) = set(service.workers) - {pid for pid in owners.values() if pid}
    connection = await connected_to(service, newcomer)
    status, body = await connection.check({"user": "42"})
    assert (status, body["statuses"][0]["remaining"]) == (429, 0)
    await connection.close()
    service.said(r"worker \d ended \(signal 9\) and is started again")
    # What the dead one had counted is not forgotten, but for its last moments.
    counted = service.counted("penstock_decisions_total", rule="api/user")
    assert counted >= load.total / 3


@dataclass
class Pair:
    """Two workers, and their file of rules."""

    service: Penstock
    file: Path

    async def lose(self, victim: int) -> None:
        """Until it has been replaced."""
        await asyncio.to_thread(
            wait_until, lambda: replaced(self.service, victim), "a new worker", PATIENCE
        )


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    file = new_folder() / "rules.yaml"
    file.write_text(RULES)
    service = Penstock(file, "--workers", "2", "--shadow")
    try:
        yield Pair(service.wait(), file)
    finally:
        service.end()


async def test_switches_hold_in_a_new_worker(pair: Pair) -> None:
    service = pair.service
    service.told("/v1/mode", "PUT", mode="enforce")  # not as it was started
    service.told("/v1/deny", "PUT", key="other", entry="bad")
    service.told("/v1/deny", "PUT", key="other", entry="forgiven")
    service.told("/v1/overrides", "PUT", key="other", value="big", limit="7/hour")
    service.told("/v1/overrides", "PUT", key="other", value="short", limit="7/hour", lasts="1ms")
    victim = service.workers[0]
    os.kill(victim, signal.SIGKILL)
    # While it is away, and while the next one starts: it is told when it is there.
    service.told("/v1/deny?key=other&entry=forgiven", "DELETE")
    late: list[str] = []
    while not replaced(service, victim):
        late.append(f"late-{len(late)}")
        changed = service.told("/v1/deny", "PUT", key="other", entry=late[-1])
        assert changed["workers"] == 2
        await asyncio.sleep(0.01)
    for worker in service.workers:
        connection = await connected_to(service, worker)
        found = {
            name: await connection.check({"other": name})
            for name in ("bad", "forgiven", "big", "short", *late)
        }
        await connection.close()
        assert {name: status for name, (status, _) in found.items()} == {
            "bad": 429, "forgiven": 200, "big": 200, "short": 200, **dict.fromkeys(late, 429)
        }  # fmt: skip
        assert found["big"][1]["statuses"][0]["limit"]["amount"] == 7
        assert found["short"][1]["statuses"][0]["limit"]["amount"] == 1000


async def test_a_new_worker_has_the_rules_in_force_also_if_the_file_is_broken(pair: Pair) -> None:
    service = pair.service
    pair.file.write_text(RULES.replace("1000/second", "77/hour"))
    service.said("rules reloaded")
    pair.file.write_text("domain: api\ndescriptors: 5\n")
    service.said(r"rules\.yaml:2")
    victim = service.workers[0]
    os.kill(victim, signal.SIGKILL)
    await pair.lose(victim)
    for worker in service.workers:
        connection = await connected_to(service, worker)
        _, body = await connection.check({"other": "x"})
        assert body["statuses"][0]["limit"]["amount"] == 77
        await connection.close()


async def test_what_comes_while_all_workers_are_dead_is_answered(pair: Pair) -> None:
    service = pair.service
    assert service.check({"user": "1"}).status == 200
    for pid in service.workers:
        os.kill(pid, signal.SIGKILL)
    answer = await asyncio.to_thread(service.check, {"user": "1"})
    assert answer.status == 200
    assert json.loads(answer.body)["statuses"][0]["remaining"] == LIMIT - 2  # in shared memory


def test_two_services_do_not_share_a_port(pair: Pair) -> None:
    second = Penstock(None, "--workers", "2", "--http", pair.service.http)
    try:
        second.said("cannot listen on")
        second.process.wait(60)
    finally:
        code = second.end()
    assert code == 1


def test_workers_end_with_their_supervisor(pair: Pair) -> None:
    service = pair.service
    gone = [Path(f"/proc/{pid}/cmdline") for pid in service.workers]
    os.kill(service.process.pid, signal.SIGKILL)
    wait_until(
        lambda: not any(path.exists() and path.read_bytes() for path in gone),
        "its workers to end",
        PATIENCE,
    )


def test_a_worker_ends_without_freeing_its_memory_first(penstock_service: Start) -> None:
    """To free large rules takes seconds, in which the supervisor would kill it."""
    folder = new_folder()
    (folder / "sitecustomize.py").write_text(
        "import atexit, sys, time\n"
        "if 'penstock.running.worker_main' in sys.orig_argv:\n"
        "    atexit.register(time.sleep, 30)\n"
    )
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    service = penstock_service(RULES, "--workers", "2", PYTHONPATH=path)
    assert service.end() == 0
    assert "draining" in service.log
    assert "did not end in time" not in service.log
