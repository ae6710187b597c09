"""A real server fails in every way while decisions are made without a pause.

Whatever happens to it: no decision takes longer than its deadline and a little, none raises,
each that was made without the server says so, events tell of it, and within a second of the
server's answering again decisions are shared again. Run with -s to see the figures.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import pytest

from stores.proxy import WRONG_SHAPES, Proxy
from stores.redis_server import Server

pytest.importorskip("redis")

import redis

from penstock import Limiter
from penstock.events import StoreDown, StoreUp
from penstock.stores.redis import RedisStore
from stores.load import BACK_WITHIN, KINDS, Load, TaskLoad, wait_for
from stores.pinger import Pinger

pytestmark = pytest.mark.realtime
Start = Callable[..., Server]

# By which the script says that a call came too late.
A_TIME = b"*1\r\n:1700000000000000\r\n"

both = pytest.mark.parametrize("kind", KINDS)


def check_promises(load: Load, what: str) -> None:
    """No decision took too long; nothing raised that ought not (see Load)."""
    _, beyond = load.excess()
    print(f"\n{what}: {load.summary}")
    assert beyond <= 0, f"{beyond * 1e3:.1f} ms beyond deadline and slack, and no stall explains it"
    # A caller that was too busy to be told in time helps itself, and may be told yet.
    twice = load.reasons.total() - sum(one.degraded for one in load.made)
    assert 0 <= twice <= load.reasons["this process was too busy to ask in time"]


def is_late(reason: str) -> bool:
    """Whether a decision was degraded for want of time, which a busy machine explains.

    With the last of them that the breaker allows, the connection is closed under the others.
    """
    late = (
        "no answer within",
        "too busy",
        "had passed",
        "slower than the deadline",
        "TimeoutError",
    )
    return reason == "closed" or any(words in reason for words in late)


def is_up(load: Load) -> bool:
    """Whether the store is up and says so: each StoreDown has its StoreUp."""
    return load.store.state == "closed" and load.told(StoreDown) == load.told(StoreUp)


def outage(
    load: Load,
    url: str,
    breaks: Callable[[], Any],
    mends: Callable[[], Any],
    what: str,
    *,
    lasts: float = 0.5,
    settled: float = 0.15,
    goes_down: bool = True,
) -> None:
    """Break it for so long under load, mend it, and see decisions shared again in time."""
    with Pinger(url) as pinger:
        assert wait_for(lambda: is_up(load))
        already = len(load.events)
        healthy = pinger.first_after(time.monotonic())
        time.sleep(settled)
        assert wait_for(lambda: load.shared_since(healthy) > 0), "not shared before it broke"
        unexcused = load.unexcused(healthy, pinger.stalls)
        assert not unexcused, f"degraded by a healthy server: {unexcused[:3]}"

        breaks()
        broken = time.monotonic()
        assert wait_for(lambda: load.degraded_since(broken) > 0), "nobody noticed"
        time.sleep(max(0.0, broken + lasts - time.monotonic()))
        mended = time.monotonic()
        shared = [one for one in load.since(broken) if not one.degraded and one.end < mended]
        mends()
        answers = pinger.first_after(mended)
        assert wait_for(lambda: load.shared_since(mended) > 0), "it never came back"
        back = min(one.end for one in load.since(mended) if not one.degraded)
        time.sleep(settled)
        assert wait_for(lambda: is_up(load))
        downs = [event for event in load.events[already:] if isinstance(event, StoreDown)]
        print(
            f"\n{what}: {load.degraded_since(broken)} degraded, shared again"
            f" {back - answers:.3f} s after the server"
        )
        assert not shared, "shared with whom?"
        assert back - answers <= BACK_WITHIN + load.machine.lost(answers, back)
        unexcused = load.unexcused(back, pinger.stalls)
        assert not unexcused, f"degraded after it was back: {unexcused[:3]}"
        assert bool([down for down in downs if not is_late(down.reason)]) <= goes_down
        assert not goes_down or downs, "nobody was told"


@both
def test_a_server_that_is_killed_and_restarted(kind: str, own_server: Start, prefix: str) -> None:
    server = own_server()
    with KINDS[kind](RedisStore(server.url, prefix=prefix)) as load:
        outage(load, server.url, server.kill, server.restart, f"kill -9, {kind}")
    check_promises(load, f"kill -9, {kind}")


@both
def test_a_server_that_is_stopped_and_goes_on(kind: str, own_server: Start, prefix: str) -> None:
    server = own_server()
    with KINDS[kind](RedisStore(server.url, prefix=prefix)) as load:
        lasts = 5.0 if kind == "tasks" else 1.0
        outage(load, server.url, server.pause, server.resume, f"SIGSTOP, {kind}", lasts=lasts)
    check_promises(load, f"SIGSTOP, {kind}")


@both
@pytest.mark.parametrize("way", ["black hole", "slow", "refused"])
def test_a_network_that_fails_and_recovers(
    way: str, kind: str, proxied: Proxy, prefix: str
) -> None:
    breaks = {
        "black hole": proxied.drop,
        "slow": lambda: proxied.delay(0.05),
        "refused": proxied.refuse,
    }
    # The proxy runs in this process: a lighter load, so that it is not what is slow.
    store = RedisStore(proxied.url, prefix=prefix)
    with KINDS[kind](store, pause=0.01) as load:
        outage(load, proxied.url, breaks[way], proxied.let_pass, f"{way}, {kind}")
    check_promises(load, f"{way}, {kind}")


LEAVES = {
    "LOADING": b"-LOADING Redis is loading the dataset in memory\r\n",
    "READONLY": b"-READONLY You can't write against a read only replica.\r\n",
    "MASTERDOWN": b"-MASTERDOWN Link with MASTER is down\r\n",
    **{repr(raw[:20]): raw for raw in WRONG_SHAPES if raw != A_TIME},
}
# Here it answers, and soon: it is asked on, since it may be able to decide on other keys.
STAYS = {
    "OOM": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "CLUSTERDOWN": b"-CLUSTERDOWN The cluster is down\r\n",
    "NOAUTH": b"-NOAUTH Authentication required.\r\n",
    "MISCONF": b"-MISCONF Redis is configured to save RDB snapshots\r\n",
    "BUSY": b"-BUSY Redis is busy running a script.\r\n",
    "a time and no more": A_TIME,
}


@both
def test_a_server_that_answers_with_errors_or_nonsense(
    kind: str, proxied: Proxy, prefix: str
) -> None:
    brief = {"lasts": 0.1, "settled": 0.05}
    # In threads the same parts are at work: a few will do.
    few = slice(None) if kind == "tasks" else slice(0, None, 4)
    with KINDS[kind](RedisStore(proxied.url, prefix=prefix), pause=0.01, workers=8) as load:
        for answers, down in ((LEAVES, True), (STAYS, False)):
            for name in [*answers][few]:
                proxied_reply = functools.partial(proxied.reply, answers[name])
                outage(
                    load, proxied.url, proxied_reply, proxied.let_pass, f"{name}, {kind}",
                    goes_down=down, **brief,
                )  # fmt: skip
        for breaks in (proxied.rubbish, proxied.cut):
            what = f"{breaks.__name__}, {kind}"
            outage(load, proxied.url, breaks, proxied.let_pass, what, **brief)
    check_promises(load, f"errors and nonsense, {kind}")


@both
def test_a_server_without_memory(kind: str, own_server: Start, prefix: str) -> None:
    server = own_server("--maxmemory-policy", "noeviction")
    with (
        redis.Redis.from_url(server.url) as admin,
        KINDS[kind](RedisStore(server.url, prefix=prefix)) as load,
    ):
        outage(
            load, server.url, lambda: admin.config_set("maxmemory", 1),
            lambda: admin.config_set("maxmemory", 0), f"maxmemory, {kind}", goes_down=False,
        )  # fmt: skip
    check_promises(load, f"maxmemory, {kind}")
    others = {reason for reason in load.reasons if not reason.startswith("OOM")}
    assert not [reason for reason in others if not is_late(reason)]


def test_a_password_that_is_wanted_all_at_once(own_server: Start, prefix: str) -> None:
    server = own_server()
    with (
        redis.Redis.from_url(server.url) as admin,
        KINDS["tasks"](RedisStore(server.url, prefix=prefix)) as load,
    ):

        def lock() -> None:
            admin.config_set("requirepass", "pa55word")
            admin.client_kill_filter(_type="normal", skipme=True)

        outage(
            load, server.url, lock, lambda: admin.config_set("requirepass", ""), "requirepass"
        )  # fmt: skip
    check_promises(load, "requirepass")


@both
def test_scripts_that_are_flushed_cost_no_decision(kind: str, redis_url: str, prefix: str) -> None:
    limit = "1000000/year"  # which gives nothing back while we look
    store = RedisStore(redis_url, prefix=prefix)
    with (
        redis.Redis.from_url(redis_url) as admin,
        Pinger(redis_url) as pinger,
        KINDS[kind](store, limit=limit, keys=20) as load,
    ):
        for _ in range(30):
            admin.script_flush()
            time.sleep(0.01)
    unexcused = load.unexcused(0.0, pinger.stalls)
    degraded = sum(one.degraded for one in load.made)
    with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
        limiter = Limiter(limit, store=store)
        counted = sum(1_000_000 - limiter.peek(f"key-{number}").remaining for number in range(20))
    print(f"\nSCRIPT FLUSH, {kind}: {len(load.made)} made, {degraded} degraded, {counted} counted")
    assert not unexcused, unexcused[:3]
    assert len(load.made) - degraded <= counted <= len(load.made)
    check_promises(load, f"SCRIPT FLUSH, {kind}")


def test_a_clock_that_is_set(own_server: Start, prefix: str) -> None:
    """One that goes back keeps nobody waiting beyond twice the burst, one that goes forward
    fills the bucket once."""
    server = own_server(own_clock=True)
    rate, burst = 500, 100
    with (
        Pinger(server.url) as pinger,
        TaskLoad(
            RedisStore(server.url, prefix=prefix),
            limit=f"{rate}/second burst {burst}",
            keys=1,
        ) as load,
    ):
        time.sleep(0.3)
        steps = []
        for seconds in (-10, +10, +10, -10):
            steps.append(time.monotonic())
            server.step_clock(seconds)
            time.sleep(2 * burst / rate + 0.3)
            again = [one.end for one in load.since(steps[-1] + 0.01) if one.allowed]
            assert again, "nobody was let through any more"
            print(f"\nclock {seconds:+} s: next one after {again[0] - steps[-1]:.3f} s")
            assert again[0] - steps[-1] <= 2 * burst / rate + 0.1
    assert not load.unexcused(0.0, pinger.stalls)
    admitted = sorted(one.end for one in load.made if one.allowed and not one.degraded)
    time_taken = max(one.end for one in load.made) - min(one.start for one in load.made)
    bound = burst + rate * time_taken + 2 * burst  # two steps forward
    print(f"\nclock steps: {len(admitted)} admitted, {bound:.0f} allowed")
    assert len(admitted) <= bound
    check_promises(load, "clock steps")
