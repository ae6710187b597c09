"""Workers that are killed: under load, with switches, and with files that are broken by then."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from penstock.server.wires import h2
from server.e2e.conftest import Start
from server.e2e.loading import HttpConnection, Load, owner
from server.e2e.running import PATIENCE, Penstock, ask
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
    assert all(len(lost) == 1 for lost in load.lost.values()), load.lost
    assert load.lost
    # All were served again.
    assert all(load.answered[name] > before.get(name, 0) for name in load.answered)
    # Exactly as many as the limit: those seen, and at most those whose answer was lost.
    assert LIMIT - len(load.lost) <= load.allowed <= LIMIT
    assert load.refused > 0

    # The new one counts where the others do.
    (newcomer,) = set(service.workers) - {pid for pid in owners.values() if pid}
    connection = await connected_to(service, newcomer)
    status, told = await connection.check({"user": "42"})
    assert (status, told["statuses"][0]["remaining"]) == (429, 0)
    await connection.close()
    service.said(r"worker \d ended \(signal 9\) and is started again")
    # What the dead one had counted is not forgotten, but for its last moments.
    counted = service.counted("penstock_decisions_total", rule="api/user")
    assert counted >= load.total / 3


async def test_switches_hold_in_a_new_worker_from_its_first_decision(
    penstock_service: Start,
) -> None:
    service = penstock_service(RULES, "--workers", "2", "--shadow")
    service.told("/v1/mode", "PUT", mode="enforce")  # not as it was started
    service.told("/v1/deny", "PUT", key="other", entry="bad")
    service.told("/v1/deny", "PUT", key="other", entry="forgiven")
    service.told("/v1/overrides", "PUT", key="other", value="big", limit="7/hour")
    service.told("/v1/overrides", "PUT", key="other", value="short", limit="7/hour", lasts="1ms")
    service.told("/v1/log-level", "PUT", level="warning")
    victim = service.workers[0]
    os.kill(victim, signal.SIGKILL)
    # While it is away: these are told to it when it is back.
    changed = service.told("/v1/deny", "PUT", key="other", entry="worse")
    assert changed["workers"] == 2
    service.told("/v1/deny?key=other&entry=forgiven", "DELETE")
    await asyncio.to_thread(wait_until, lambda: replaced(service, victim), "a new worker", PATIENCE)
    for worker in service.workers:
        connection = await connected_to(service, worker)
        found = {
            name: await connection.check({"other": name})
            for name in ("bad", "worse", "forgiven", "big", "short")
        }
        await connection.close()
        assert {name: status for name, (status, _) in found.items()} == {
            "bad": 429, "worse": 429, "forgiven": 200, "big": 200, "short": 200,
        }  # fmt: skip
        assert found["big"][1]["statuses"][0]["limit"]["amount"] == 7
        assert found["short"][1]["statuses"][0]["limit"]["amount"] == 1000
    assert service.told("/v1/log-level")["level"] == "warning"


async def test_a_new_worker_has_the_rules_in_force_also_if_the_file_is_broken(
    penstock_service: Start, tmp_path: Path
) -> None:
    service = penstock_service(RULES, "--workers", "2")
    good = RULES.replace("1000/second", "77/hour")
    (tmp_path / "rules.yaml").write_text(good)
    service.said("rules reloaded")
    (tmp_path / "rules.yaml").write_text("domain: api\ndescriptors: 5\n")
    service.said(r"rules\.yaml:2")
    victim = service.workers[0]
    os.kill(victim, signal.SIGKILL)
    await asyncio.to_thread(wait_until, lambda: replaced(service, victim), "a new worker", PATIENCE)
    for worker in service.workers:
        connection = await connected_to(service, worker)
        _, told = await connection.check({"other": "x"})
        assert told["statuses"][0]["limit"]["amount"] == 77
        await connection.close()


async def test_all_workers_may_die(penstock_service: Start) -> None:
    """What comes meanwhile waits, and is answered."""
    service = penstock_service(RULES, "--workers", "2")
    assert service.check({"user": "1"}).status == 200
    victims = service.workers
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    answer = await asyncio.to_thread(service.check, {"user": "1"})
    assert answer.status == 200
    assert b'"remaining":1498' in answer.body  # the counters were in shared memory


def test_workers_end_with_their_supervisor(penstock_service: Start) -> None:
    service = penstock_service(RULES, "--workers", "2")
    workers = service.workers
    os.kill(service.process.pid, signal.SIGKILL)
    gone = [Path(f"/proc/{pid}/cmdline") for pid in workers]
    wait_until(
        lambda: not any(path.exists() and path.read_bytes() for path in gone),
        "its workers to end",
        PATIENCE,
    )


def test_two_services_do_not_share_a_port(penstock_service: Start, tmp_path: Path) -> None:
    first = penstock_service(RULES, "--workers", "2")
    second = Penstock(tmp_path / "rules.yaml", "--workers", "2", "--http", first.http)
    with pytest.raises(AssertionError, match="cannot listen on"):
        second.wait()
    assert second.process.returncode == 1
