"""Rules that change, a service that leaves, and a Redis that comes and goes: under load."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from running.e2e.conftest import Start
from running.e2e.loading import (
    OK,
    SHOULD_RATE_LIMIT,
    HttpConnection,
    Load,
    channel,
    message,
    rls_pb2,
)
from running.e2e.running import PATIENCE, Penstock, ask, reserved_port
from stores import redis_server
from stores.redis_server import wait_until

RULES = """\
domain: api
descriptors:
  - key: user
    limits: {limit}
"""
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"  # of grpc.health.v1.HealthCheckResponse


def limit_in_force(service: Penstock, user: str = "anybody") -> str:
    answer = json.loads(service.check({"user": user}).body)
    return str(answer["statuses"][0]["limit"]["text"])


# Rules ------------------------------------------------------------------------------------------


async def test_rules_reload_under_load_without_an_error(
    penstock_service: Start, tmp_path: Path
) -> None:
    file = tmp_path / "rules.yaml"
    service = penstock_service(RULES.format(limit="1000000/hour"), "--workers", "2")
    load = Load(service, "api", {"user": "42"})
    async with load.running(http=4, grpcs=4):
        await load.until(100)
        for amount in (900_000, 800_000):
            said = len(service.lines)
            # As editors and configuration management do it.
            (tmp_path / "new").write_text(RULES.format(limit=f"{amount}/hour"))
            os.replace(tmp_path / "new", file)
            await load.until_logged("rules reloaded", said)
            limits = {await asyncio.to_thread(limit_in_force, service) for _ in range(6)}
            assert limits == {f"{amount}/hour"}  # both workers
            await load.until(100)

        said = len(service.lines)
        file.write_text(RULES.format(limit="7/fortnight"))
        assert "fortnight" in await load.until_logged(r"rules\.yaml:4", said)
        limits = {await asyncio.to_thread(limit_in_force, service) for _ in range(6)}
        assert limits == {"800000/hour"}
        metrics = await asyncio.to_thread(service.metrics)
        assert metrics["penstock_rules_ok"] == 0
        await load.until(100)

        # What somebody has used of a limit is carried over to the next.
        said = len(service.lines)
        file.write_text(RULES.format(limit="3/hour"))
        await load.until_logged("rules reloaded", said)
        assert (await asyncio.to_thread(service.metrics))["penstock_rules_ok"] == 1
        answers = [
            (await asyncio.to_thread(service.check, {"user": "new"})).status for _ in range(5)
        ]
        assert answers == [200, 200, 200, 429, 429]
        await load.until(100)
    assert not load.wrong
    assert not load.lost


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_change_as_soon_as_it_serves_is_not_missed(tmp_path: Path, workers: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES.format(limit="1000/hour"))
    with reserved_port() as port:
        where = f"127.0.0.1:{port}"
        service = Penstock(file, "--workers", workers, "--http", where)
    try:
        wait_until(lambda: is_healthy(where), "it serves", PATIENCE)
        file.write_text(RULES.format(limit="2000/hour"))
        service.http = where
        new = {"2000/hour"}
        wait_until(
            lambda: {limit_in_force(service) for _ in range(4)} == new, "the new rules", PATIENCE
        )
    finally:
        service.end()


def is_healthy(where: str) -> bool:
    try:
        return ask(where, "/healthcheck").status == 200
    except OSError:
        return False


def test_a_worker_that_starts_again_knows_what_was_used_of_older_limits(
    penstock_service: Start, tmp_path: Path
) -> None:
    service = penstock_service(RULES.format(limit="10/hour"), "--workers", "2")
    assert [service.check({"user": "1"}).status for _ in range(11)] == [200] * 10 + [429]
    for limit in ("20/hour", "30/hour"):
        said = len(service.lines)
        (tmp_path / "rules.yaml").write_text(RULES.format(limit=limit))
        service.said("rules reloaded", said)
    before = service.workers
    for worker in before:
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: len({*service.workers} - {*before}) == 2, "new workers", PATIENCE)
    assert service.check({"user": "1"}).status == 429
    assert service.check({"user": "2"}).status == 200


# Leaving ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_service_that_leaves_says_so_first_and_answers_what_is_open(
    workers: int, penstock_service: Start, valkey: redis_server.Server
) -> None:
    service = penstock_service(
        RULES.format(limit="5/hour"), "--workers", str(workers), "--drain", "120s",
        "--store", valkey.url, "--deadline", "120s",
    )  # fmt: skip
    assert service.check({"user": "warm"}).status == 200
    half = await HttpConnection.open(service.http)
    await half.send(b"GET /healthcheck HTTP/1.1\r\nhost: test\r\n")
    async with channel(service.grpc) as link:
        watch = link.unary_stream("/grpc.health.v1.Health/Watch")(b"\x0a\x09ratelimit")
        assert await watch.read() == SERVING
        valkey.pause()
        # Both wait for Redis now.
        asking = asyncio.ensure_future(
            link.unary_unary(SHOULD_RATE_LIMIT)(message("api", {"user": "grpc"}))
        )
        posting = asyncio.ensure_future(asyncio.to_thread(service.check, {"user": "http"}))
        await asyncio.sleep(0.2)

        service.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(watch.read(), PATIENCE) == NOT_SERVING
        health = await asyncio.to_thread(ask, service.admin, "/v1/health")
        assert (health.status, json.loads(health.body)["components"]["service"]) == (503, "down")
        # Nobody new is let in, and nobody is left waiting.
        await asyncio.to_thread(wait_until, lambda: _refused(service), "its port", PATIENCE)
        await half.send(b"\r\n")
        assert await half.answer() == (500, "draining")
        await half.close()
        assert not asking.done()
        assert not posting.done()

        valkey.resume()
        answer = rls_pb2.RateLimitResponse.FromString(await asking)
        assert (answer.overall_code, answer.statuses[0].limit_remaining) == (OK, 4)
        assert (await posting).status == 200
    assert await asyncio.to_thread(service.end) == 0
    assert "Traceback" not in service.log
    service.said("ended")


def _refused(service: Penstock) -> bool:
    try:
        ask(service.http, "/healthcheck")
    except ConnectionRefusedError:
        return True
    except (ConnectionError, OSError):
        pass
    return False


# Redis ------------------------------------------------------------------------------------------


@pytest.fixture
def valkey() -> Iterator[redis_server.Server]:
    pytest.importorskip("redis")
    binary = redis_server.find_binary()
    if binary is None:
        pytest.skip(redis_server.NO_SERVER)
    server = redis_server.Server(binary)
    server.start()
    yield server
    server.stop()


async def test_redis_is_killed_and_comes_back(
    penstock_service: Start, valkey: redis_server.Server
) -> None:
    """Decisions go on by policy; metrics and health tell; all is well again without a restart."""
    rules = """
domain: api
descriptors:
  - key: user
    limits: 1000000/hour
  - key: strict
    limits: 5/hour on_failure closed
  - key: local
    limits: 4/hour on_failure local
"""
    service = penstock_service(rules, "--store", valkey.url, "--deadline", "20s")
    load = Load(service, "api", {"user": "42"})

    def store_is(state: str) -> bool:
        health = json.loads(ask(service.admin, "/v1/health").body)
        return bool(health["components"]["store"] == state)

    async with load.running(http=3, grpcs=3):
        await load.until(50)
        assert store_is("up")
        assert service.counted("penstock_degraded_decisions_total") == 0
        valkey.kill()
        await asyncio.to_thread(wait_until, lambda: store_is("down"), "news of it", PATIENCE)
        await load.until(50)
        # The service itself is well: it decides.
        answers = await asyncio.to_thread(_while_down, service)
        assert answers == {"health": 200, "strict": [429, 429], "local": [200] * 4 + [429]}
        assert load.refused == 0
        assert service.counted("penstock_degraded_decisions_total") > 50
        assert service.values("penstock_store_up") == [0]
        assert service.counted("penstock_store_downs_total") == 1
        valkey.restart()
        await asyncio.to_thread(wait_until, lambda: store_is("up"), "its return", PATIENCE)
        degraded = service.counted("penstock_degraded_decisions_total")
        await load.until(50)
        checks = [(await asyncio.to_thread(service.check, {"strict": "1"})) for _ in range(6)]
        assert [check.status for check in checks] == [200] * 5 + [429]
        assert service.counted("penstock_store_up") == 1
        assert service.counted("penstock_degraded_decisions_total") == degraded
    assert not load.wrong
    assert not load.lost


def _while_down(service: Penstock) -> dict[str, Any]:
    return {
        "health": ask(service.http, "/healthcheck").status,
        "strict": [service.check({"strict": "1"}).status for _ in range(2)],
        "local": [service.check({"local": "1"}).status for _ in range(5)],
    }


async def test_without_redis_it_starts_and_finds_it_later(
    penstock_service: Start, valkey: redis_server.Server
) -> None:
    valkey.kill()
    service = penstock_service(RULES.format(limit="2/hour"), "--store", valkey.url)
    service.said("started without the store")
    assert [service.check({"user": "1"}).status for _ in range(4)] == [200] * 4
    assert service.values("penstock_store_up") == [0]
    valkey.restart()

    def limited() -> bool:
        return service.check({"user": "2"}).status == 429

    await asyncio.to_thread(wait_until, limited, "Redis to be found", PATIENCE)
    assert json.loads(ask(service.admin, "/v1/health").body)["components"]["store"] == "up"
