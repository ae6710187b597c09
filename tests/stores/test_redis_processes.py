"""Several processes, forks and event loops on one server; and stores that go away in use."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from stores.redis_server import Server

pytest.importorskip("redis")

from penstock import AsyncLimiter, Limiter
from penstock.errors import StoreError
from penstock.stores.redis import RedisStore

Start = Callable[..., Server]
TESTS = Path(__file__).parents[1]


def start(task: str, *args: Any) -> subprocess.Popen[str]:
    """A fresh interpreter: one that runs pytest has too much in it to be forked."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "stores.redis_workers", task, json.dumps(args)],
        cwd=TESTS, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def result(process: subprocess.Popen[str], patience: float = 60, quiet: bool = True) -> Any:
    try:
        out, wrong = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, wrong
    unexpected = [line for line in wrong.splitlines() if "is not asked any more" not in line]
    assert not (quiet and unexpected), wrong
    return json.loads(out)


# Together --------------------------------------------------------------------------


def test_eight_processes_get_what_the_limit_says(own_server: Start, prefix: str) -> None:
    url, lasts = own_server().url, 2.0
    # Each burst is worth a second, in which this machine may keep us from asking at all. The rates
    # are low, so that a busy machine asks for more than that, too.
    rates = {"hot": 200, **{f"k{number}": 4 for number in range(100)}}
    limits = {key: f"{rate}/second" for key, rate in rates.items()}
    hot, many = {"hot": limits.pop("hot")}, limits
    crew = [start("hammer", url, prefix, part) for part in (hot, many) for _ in range(4)]
    for process in crew:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    begin = time.monotonic() + 0.1
    for process in crew:
        assert process.stdin
        process.stdin.write(f"[{begin}, {begin + lasts}]\n")
        process.stdin.flush()
    found = [result(process) for process in crew]
    admitted, asked = (
        sum((Counter(one[what]) for one in found), Counter()) for what in ("admitted", "asked")
    )
    whole = max(one["end"] for one in found) - begin  # from the first hit to the last answer
    ratios = {}
    for key, rate in rates.items():
        assert admitted[key] <= rate + rate * whole, key
        # Who was refused found less than one unit: all was given out that had come until then
        # from the first hit on, but for what did not fit while the bucket was full.
        first = min(one["first"].get(key, math.inf) for one in found)
        refused = max(one["refused"].get(key, 0) for one in found)
        if refused:
            ratios[key] = admitted[key] / (rate + rate * (refused - first) - 1)
    print(
        f"\n8 processes, {asked.total() / lasts:.0f} hits/s: admitted / allowed is"
        f" {ratios.get('hot', 0):.4f} for one hot key, {mean(ratios.values()):.4f} over"
        f" {len(ratios)} keys, {min(ratios.values()):.4f} for the worst of them"
    )
    assert not sum(one["degraded"] for one in found)
    assert ratios["hot"] >= 0.99
    assert len(ratios) > 50, "no more was asked for than the limits allow"
    assert mean(ratios.values()) >= 0.99


def test_four_processes_without_their_server_admit_no_more_than_the_limit(
    own_server: Start,
) -> None:
    server = own_server()
    server.kill()
    crew = [start("alone", server.url, "100/year", 0.25, 3) for _ in range(4)]
    admitted = [result(process) for process in crew]
    print(f"\nserver dead, share=0.25, 3 keys of 100: {admitted} admitted")
    assert sum(admitted) <= 300
    assert sum(admitted) >= 297


# Forks and loops ---------------------------------------------------------------------


@pytest.mark.parametrize("task", ["forks", "fork_in_a_loop", "fork_and_drop"])
def test_a_fork_in_the_middle_of_decisions(task: str, redis_url: str, prefix: str) -> None:
    found = result(start(task, redis_url, prefix))
    assert set(found["codes"]) == {0}
    assert not found.get("wrong")
    assert found.get("right", True)


@pytest.mark.parametrize("tidy", [True, False])
def test_one_store_in_several_event_loops(tidy: bool, own_server: Start, prefix: str) -> None:
    # Who closes a loop and not what runs in it is told so, by Python's own warnings.
    found = result(start("loops", own_server().url, prefix, tidy), quiet=tidy)
    assert found["right"]
    assert found["before"] <= (0 if tidy else 2), "loops that are gone keep their connections"
    assert found["after"] == 0


@pytest.mark.parametrize("close", [False, True])
def test_a_store_that_is_gone_leaves_no_thread(close: bool, own_server: Start, prefix: str) -> None:
    found = result(start("collected", own_server().url, prefix, close))
    assert found["before"][1] >= 1
    assert found["after"] == [[], 0]


# Closing -----------------------------------------------------------------------------


def test_closing_lets_go_of_threads_that_wait(own_server: Start, prefix: str) -> None:
    server = own_server()
    store = RedisStore(server.url, prefix=prefix, deadline="1h", connect_timeout="60s")
    limiter, seen = Limiter("10/second", store=store), []
    assert not limiter.hit("k").degraded
    server.pause()
    threads = [threading.Thread(target=lambda: seen.append(limiter.hit("k"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    store.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "it waits for its deadline"
    assert [decision.degraded for decision in seen] == [True] * 8
    with pytest.raises(StoreError, match="closed"):
        limiter.hit("k")


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_closing_lets_go_of_tasks_that_wait(
    elsewhere: bool, own_server: Start, prefix: str
) -> None:
    server = own_server()
    store = RedisStore(server.url, prefix=prefix, deadline="1h", connect_timeout="60s")
    limiter = AsyncLimiter("10/second", store=store)
    await store.connect_async()
    server.pause()
    tasks = [asyncio.ensure_future(limiter.hit("k")) for _ in range(300)]
    await asyncio.sleep(0.05)
    if elsewhere:
        await asyncio.to_thread(store.close)
    else:
        await store.close_async()
    seen = await asyncio.wait_for(asyncio.gather(*tasks), 60)
    assert all(decision.degraded for decision in seen)
    if elsewhere:
        with pytest.raises(StoreError, match="closed"):
            await limiter.hit("k")
    store.close()


def test_closing_under_load_raises_what_is_said(redis_url: str, prefix: str) -> None:
    """Those who come too late are told that it is closed, and nothing else."""

    def work(limiter: Limiter, ended: list[BaseException]) -> None:
        try:
            while True:
                limiter.hit("k")
        except BaseException as error:
            ended.append(error)

    for round in range(20):
        store, ended = RedisStore(redis_url, prefix=prefix), []
        limiter = Limiter("1000000/second", store=store)
        threads = [threading.Thread(target=work, args=(limiter, ended)) for _ in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.02 + 0.001 * round)
        store.close()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "it hangs"
        assert {type(error) for error in ended} == {StoreError}, ended
