"""Banks of one process, of one host and of a fleet: shared or not, and what restarts mean."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import StoreUnavailable
from penstock.limits import Limit
from penstock.service.rlqs import shares
from penstock.service.rlqs.account import CONFLICT, REPORT, Reply, Request
from penstock.service.rlqs.bank import Entry, MemoryBank
from penstock.service.rlqs.file_bank import FileBank
from penstock.service.rlqs.redis_bank import RedisBank
from penstock.stores.redis import RedisStore
from penstock.testing import FakeClock

TERMS = shares.terms_of([Limit.parse("100/second")])
UNKNOWN = (shares.TTL + shares.SLACK) / 1000


def report(node: str, key: str = "shop|user=a", requests: int = 1) -> Entry:
    return Entry(key, TERMS, Request(REPORT, node, f"stream of {node}", requests))


def bursts(replies: list[Reply | None]) -> list[int | None]:
    return [None if reply is None else reply.burst for reply in replies]


async def test_a_new_process_says_nothing_while_an_old_ones_assignments_may_live() -> None:
    clock = FakeClock()
    bank = MemoryBank(clock)
    assert await bank.exchange([report("a")]) == [None]
    clock.advance(UNKNOWN - 0.001)
    assert await bank.exchange([report("a")]) == [None]
    clock.advance(0.001)
    assert bursts(await bank.exchange([report("a"), report("b")])) == [100, 0]


async def test_a_new_file_says_nothing_at_first_and_an_old_one_knows(tmp_path: Path) -> None:
    clock = FakeClock()
    bank = FileBank(tmp_path / "quotas", clock)
    assert await bank.exchange([report("a")]) == [None]
    clock.advance(UNKNOWN)
    assert bursts(await bank.exchange([report("a")])) == [100]
    await bank.close()
    again = FileBank(tmp_path / "quotas", clock)
    assert bursts(await again.exchange([report("b")])) == [0]
    await again.close()


async def test_a_machine_that_starts_anew_has_another_clock(tmp_path: Path) -> None:
    clock = FakeClock(10**18)
    bank = FileBank(tmp_path / "quotas", clock)
    clock.advance(UNKNOWN)
    assert bursts(await bank.exchange([report("a")])) == [100]
    await bank.close()
    rebooted = FakeClock(10**9)
    again = FileBank(tmp_path / "quotas", rebooted)
    assert await again.exchange([report("b")]) == [None]  # it cannot know for how long
    rebooted.advance(UNKNOWN)
    assert bursts(await again.exchange([report("b")])) == [0]  # `a` may be using it still
    rebooted.advance(UNKNOWN)
    assert bursts(await again.exchange([report("b")])) == [0]
    rebooted.advance(1)
    assert bursts(await again.exchange([report("b")])) == [100]
    await again.close()


async def test_two_processes_share_a_file(tmp_path: Path) -> None:
    clock = FakeClock()
    banks = [FileBank(tmp_path / "quotas", clock) for _ in range(2)]
    clock.advance(UNKNOWN)
    assert bursts(await banks[0].exchange([report("a")])) == [100]
    assert bursts(await banks[1].exchange([report("b")])) == [0]
    clock.advance(1)
    same = report("a")._replace(request=Request(REPORT, "a", "another stream"))
    (reply,) = await banks[1].exchange([same])
    assert reply is not None
    assert reply.status == CONFLICT
    for bank in banks:
        await bank.close()


HAMMER = """
import asyncio, sys
from penstock.limits import Limit
from penstock.service.rlqs import shares
from penstock.service.rlqs.account import REPORT, Request
from penstock.service.rlqs.bank import Entry
from penstock.service.rlqs.file_bank import FileBank
from penstock.testing import FakeClock

async def main(path, name):
    terms = shares.terms_of([Limit.parse("100/second")])
    bank = FileBank(path, FakeClock(10**12))
    for number in range(20):
        request = Request(REPORT, f"{name}-{number}", name, 1)
        assert None not in await bank.exchange(
            [Entry(f"shop|user={each}", terms, request) for each in "abc"]
        )
    await bank.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_do_not_lose_what_others_wrote(tmp_path: Path) -> None:
    path = tmp_path / "quotas"
    await FileBank(path, FakeClock(1)).close()
    workers = [
        subprocess.Popen([sys.executable, "-c", HAMMER, str(path), f"worker-{each}"])
        for each in range(2)
    ]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    bank = FileBank(path, FakeClock(10**12))
    (reply,) = await bank.exchange([report("last")])
    assert reply is not None
    assert reply.nodes == 41
    await bank.close()


async def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "quotas"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreUnavailable, match="quotas"):
        FileBank(path)
    other = tmp_path / "newer"
    with sqlite3.connect(other) as file:
        file.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreUnavailable, match="version 99"):
        FileBank(other)


async def test_idle_accounts_are_forgotten() -> None:
    clock = FakeClock()
    bank = MemoryBank(clock, first=True)
    await bank.exchange([report("a", f"shop|user={number}") for number in range(100)])
    assert len(bank._accounts) == 100
    clock.advance(61)
    await bank.exchange([report("a", "shop|user=x")])
    assert len(bank._accounts) == 1


async def test_servers_share_a_bank_in_redis(redis_url: str, prefix: str) -> None:
    stores = [RedisStore(redis_url, prefix=prefix) for _ in range(2)]
    banks = [RedisBank(store) for store in stores]
    entries = [report("a", f"{domain}|user={at}") for at in range(100) for domain in ("x", "y")]
    assert bursts(await banks[0].exchange(entries)) == [100] * 200
    assert bursts(await banks[1].exchange([report("b", "x|user=7")])) == [0]
    for bank, store in zip(banks, stores, strict=True):
        await bank.close()
        store.close()


async def test_a_bank_in_redis_that_is_away_says_so(own_server: Any, prefix: str) -> None:
    server = own_server()
    store = RedisStore(server.url, prefix=prefix)
    bank = RedisBank(store)
    assert bursts(await bank.exchange([report("a")])) == [100]
    server.stop()
    with pytest.raises(StoreUnavailable):
        await bank.exchange([report("a")])
    await bank.close()
    store.close()


async def test_a_bank_in_a_cluster(cluster: Any, prefix: str) -> None:
    """Each domain is in a slot of its own: one exchange asks several nodes."""
    keys = [f"shop-{number}|user={user}" for number in range(12) for user in "ab"]
    stores = [
        RedisStore(f"redis+cluster://127.0.0.1:{cluster.ports[0]}", prefix=prefix) for _ in range(2)
    ]
    banks = [RedisBank(store) for store in stores]
    first = await banks[0].exchange([report("a", key) for key in keys])
    second = await banks[1].exchange([report("b", key) for key in keys])
    assert bursts(first) == [100] * len(keys)
    assert bursts(second) == [0] * len(keys)
    for bank, store in zip(banks, stores, strict=True):
        await bank.close()
        store.close()
