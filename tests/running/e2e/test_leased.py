"""``penstock serve --leased`` under load, over a real server."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Gate
from penstock.rules.deciding.verdict import Descriptor
from penstock.rules.reading.loading import read_rules
from penstock.stores.redis import RedisStore
from running.e2e.conftest import Start
from running.e2e.loading import Load
from running.e2e.running import PATIENCE
from stores import redis_server
from stores.redis_server import wait_until

RATE, BURST = 1000, 2000
RULES = f"{{domain: api, descriptors: [{{key: tenant, limits: {RATE}/second burst {BURST}}}]}}"
# A long window: nothing comes back by itself while the test looks.
WINDOW = "{domain: api, descriptors: [{key: tenant, limits: 1000000/day fixed_window}]}"
HOT = {"tenant": "acme"}


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


def used(valkey: redis_server.Server, rules: str) -> int:
    """Units that the counter in Redis has given away."""
    with RedisStore(valkey.url, deadline="60s", connect_timeout="60s") as store:
        gate = Gate(read_rules(rules), store)
        decision = gate.check(Descriptor.of(HOT, hits=0)).statuses[0].decision
        assert decision is not None
        return decision.limit.burst - decision.remaining


async def test_two_workers_share_a_limit_exactly_and_decide_it_locally(
    penstock_service: Start, valkey: redis_server.Server
) -> None:
    service = penstock_service(
        RULES, "--store", valkey.url, "--leased", "--workers", "2", "--deadline", "20s"
    )
    service.said(r"store  redis://\S+, leased")
    load = Load(service, "api", HOT)
    start = time.monotonic()
    async with load.running(http=6, grpcs=6):
        await asyncio.sleep(3)
    elapsed = time.monotonic() - start
    assert not load.wrong
    assert load.total > 500, "the machine is too slow for this test"
    assert load.allowed <= BURST + RATE * elapsed
    counted = {
        where: service.counted("penstock_lease_decisions_total", decided=where)
        for where in ("here", "directly")
    }
    assert sum(counted.values()) == load.total
    assert counted["here"] > 0.9 * load.total, counted
    assert service.counted("penstock_lease_calls_total") < 0.1 * load.total


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_sigterm_gives_leases_back(
    penstock_service: Start, valkey: redis_server.Server, workers: str
) -> None:
    service = penstock_service(
        WINDOW, "--store", valkey.url, "--leased", "--workers", workers, "--deadline", "20s"
    )

    def holds_units() -> bool:
        return service.counted("penstock_lease_units") > 0

    load = Load(service, "api", HOT)
    async with load.running(http=6, grpcs=2):
        await load.until(300)
        await asyncio.to_thread(wait_until, holds_units, "units in hand", PATIENCE)
    assert await asyncio.to_thread(service.end) == 0
    assert not load.wrong
    assert used(valkey, WINDOW) == load.allowed


async def test_the_admin_api_and_top_show_who_holds_what(
    penstock_service: Start, valkey: redis_server.Server
) -> None:
    service = penstock_service(
        WINDOW, "--store", valkey.url, "--leased", "--workers", "2", "--deadline", "20s"
    )

    def holders() -> list[dict[str, Any]]:
        (counter,) = service.told("/v1/counters?descriptor=tenant=acme")["counters"]
        held: list[dict[str, Any]] = counter["limits"][0]["holders"]
        return held

    load = Load(service, "api", HOT)
    async with load.running(http=6, grpcs=6):
        await asyncio.to_thread(
            wait_until, lambda: len(holders()) == 2, "both workers hold units", PATIENCE
        )
        held = await asyncio.to_thread(holders)
        top = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "penstock", "top", "--once", "--admin", service.admin],
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
    assert not load.wrong
    # Names have the host, the process and a random part.
    processes = {int(holder["instance"].split(":")[1]) for holder in held}
    assert processes <= set(service.workers)
    for holder in held:
        assert holder["units"] >= 0
        assert holder["demand"] > 0
        assert 0 < holder["expires"] <= 10
    assert top.returncode == 0, top.stderr
    assert re.search(r"\n\d leases?  [\d,]+ units held  [\d.]+% decided locally\n", top.stdout)
    table = top.stdout.partition("LEASED KEY")[2].partition("\n\n")[0]
    assert "api|tenant=acme  1000000/day" in table
    for holder in held:
        assert re.search(rf"\n    {re.escape(holder['instance'])} +[\d,]+ +[\d,]+", table), table


async def test_a_reload_changes_the_amount_of_a_leased_limit(
    penstock_service: Start, valkey: redis_server.Server, tmp_path: Path
) -> None:
    """Up and down, under load: never above the larger limit, and the new one is in force."""
    file = tmp_path / "rules.yaml"
    service = penstock_service(
        RULES, "--store", valkey.url, "--leased", "--workers", "2", "--deadline", "20s"
    )
    small, large = (RATE // 10, BURST // 10), (RATE, BURST)
    load = Load(service, "api", HOT)
    start = time.monotonic()
    async with load.running(http=4, grpcs=4):
        await load.until(500)
        for rate, burst in (small, large, small):
            logged = len(service.lines)
            (tmp_path / "new").write_text(
                RULES.replace(f"{RATE}/second burst {BURST}", f"{rate}/second burst {burst}")
            )
            os.replace(tmp_path / "new", file)
            await load.until_logged("rules reloaded", logged)
            began, before = time.monotonic(), load.allowed
            await asyncio.sleep(2)
            # Requests that were decided before the reload may be counted after it.
            assert load.allowed - before <= burst + rate * (time.monotonic() - began) + 8
    elapsed = time.monotonic() - start
    assert not load.wrong
    assert load.refused > 0
    assert load.allowed <= BURST + RATE * elapsed
