"""Several limits in one text, and limits of 0, in Redis: as in memory, in one round trip."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("redis")

from penstock import AsyncLimiter, Limiter, MemoryStore
from penstock.durations import MICROSECOND, SECOND
from penstock.stores.redis import RedisStore
from penstock.testing import FakeClock
from stores.redis_time import ToldStore

if TYPE_CHECKING:
    from stores.redis_cluster import Cluster

START = 1_704_067_200 * SECOND
FIELDS = ("allowed", "remaining", "delay", "overrun", "degraded")
TEXTS = [
    "3/second; 10/minute fixed_window",
    "5/second burst 2, 9/10s sliding_window cells 2 | 12/minute sliding_log",
    "4/second leaky_bucket; 6/minute lockout 30s",
    "5/second; 0/day",
    "0/minute sliding_log",
]


def play(store: Any, clock: FakeClock, text: str, prefix: str, seed: int) -> list[Any]:
    """Everything that a limiter answers to a script of its verbs."""
    chance = random.Random(seed)
    clock.set(START)
    limiter = Limiter(text, store=store)
    answers: list[Any] = []
    for _ in range(60):
        clock.advance_ns(chance.choice((0, 1, 100, 350_000, 2_000_000)) * MICROSECOND)
        key, cost = f"{prefix}{chance.randrange(2)}", chance.choice((1, 1, 1, 2))
        verb = chance.choice(
            ("hit", "hit", "hit", "peek", "hit_many", "hit_all", "settle", "reset")
        )
        found: list[Any] = []
        if verb == "hit_many":
            found = limiter.hit_many([key, f"{prefix}0"], cost=cost)
        elif verb == "hit_all":
            found = [limiter.hit_all([(key, None, cost), (f"{prefix}2", text)])]
        elif verb == "settle":
            reservation = limiter.reserve(key, cost=cost)
            found = [reservation.decision]
            if reservation:
                clock.advance_ns(chance.choice((0, 700)) * MICROSECOND)
                reservation.settle(chance.randrange(4))
        elif verb == "reset":
            limiter.reset(key)
            limiter.refund(f"{prefix}0", 1)
        else:
            found = [getattr(limiter, verb)(key, cost=cost)]
        answers += [
            (
                verb,
                str(each.limit),
                *(getattr(each, name) for name in FIELDS),
                in_microseconds(each._retry),
                in_microseconds(each._reset),
            )
            for each in found
        ]
    return answers


def in_microseconds(time: int) -> int:
    """Rounded up, as the server's clock counts in them."""
    return -(-time // MICROSECOND) if time > 0 else time


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_decisions_as_in_memory(redis_url: str, prefix: str, text: str) -> None:
    clock = FakeClock(START)
    for seed in range(5):
        expected = play(MemoryStore(clock=clock), clock, text, f"{seed}", seed)
        with ToldStore(redis_url, clock, prefix=prefix) as store:
            assert play(store, clock, text, f"{seed}", seed) == expected


def test_one_round_trip(redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
        limiter = Limiter("5/minute; 100/day; 1000/week", store)
        asked: list[int] = []
        engines = store._engines
        ask = engines._ask

        def counted(calls: Any, mailbox: Any) -> Any:
            asked.append(len(calls))
            return ask(calls, mailbox)

        monkeypatch.setattr(engines, "_ask", counted)
        assert limiter.hit("k")
        limiter.peek("k")
        limiter.refund("k")
        assert len(limiter.hit_many(["k", "j"])) == 2
        limiter.reserve("k", cost=2).settle(1)
        limiter.reset("k")
        # One for each, and one more to settle.
        assert len(asked) == 7


def test_tasks(redis_url: str, prefix: str) -> None:
    async def main() -> None:
        async with RedisStore(
            redis_url, prefix=prefix, deadline="60s", connect_timeout="60s"
        ) as store:
            limiter = AsyncLimiter("2/minute; 3/day", store)
            assert await limiter.hit("k")
            assert (await limiter.peek("k")).remaining == 1
            assert [d.allowed for d in await limiter.hit_many(["k", "k"])] == [True, False]
            await limiter.refund("k", 2)
            async with limiter.reserve("k", cost=2) as reservation:
                await reservation.settle(1)
            assert (await limiter.peek("k")).remaining == 1
            assert not await limiter.wait("k", cost=2, timeout=0)
            await limiter.reset("k")
            assert (await limiter.hit("k", cost=2)).remaining == 0

    asyncio.run(main())


def test_a_cluster_gives_back_what_another_slot_refused(cluster: Cluster, prefix: str) -> None:
    where = f"redis+cluster://127.0.0.1:{cluster.ports[0]}"
    with RedisStore(where, prefix=prefix, deadline="60s", connect_timeout="60s") as store:
        limiter = Limiter("3/minute; 5/hour; 2/day", store)
        assert [limiter.hit("k").allowed for _ in range(4)] == [True, True, False, False]
        left = [limiter.peek("k", text).remaining for text in ("3/minute", "5/hour", "2/day")]
        assert left == [1, 3, 0]
        limiter.reset("k")
        assert [d.allowed for d in limiter.hit_many(["k", "k", "k"])] == [True, True, False]


@pytest.mark.parametrize("policy", ["open", "closed", "local"])
def test_a_limit_of_0_refuses_while_the_server_is_away(policy: str) -> None:
    with RedisStore("redis://127.0.0.1:1", on_failure=policy) as store:
        limiter = Limiter(store=store)
        decision = limiter.hit("k", "0/minute share 0.5")
        assert (decision.allowed, decision.retry_after, decision.degraded) == (False, None, False)
        refused = limiter.hit("k", "5/minute; 0/day")
        assert (refused.allowed, str(refused.limit), refused.retry_after) == (False, "0/day", None)


def test_several_limits_while_the_server_is_away() -> None:
    with RedisStore("redis://127.0.0.1:1", on_failure="local") as store:
        limiter = Limiter("2/minute; 3/day", store)
        reservation = limiter.reserve("k", cost=2)
        assert reservation
        assert reservation.decision.degraded
        assert not limiter.hit("k")
        reservation.settle(0)  # where it was taken: in this process
        assert limiter.hit("k", cost=2)
