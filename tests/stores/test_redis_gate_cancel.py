"""Checks, settlements and refunds whose task is cancelled: nothing is taken, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest

pytest.importorskip("redis")
pytest.importorskip("yaml")

from penstock import AsyncGate, AsyncLimiter
from penstock.rules.deciding.verdict import Descriptor
from penstock.service.service import Service
from penstock.stores.redis import RedisStore
from penstock.wires.http.check import CheckApi
from penstock.wires.http.messages import HttpRequest

T = TypeVar("T")
# Windows count in whole units: of a bucket, some comes back meanwhile.
RULES = """
domain: api
descriptors:
  - key: single
    limits: 100000/day fixed_window align first_hit
  - key: several
    limits: [100000/day fixed_window align first_hit, 90000/hour fixed_window align first_hit]
  - key: shadow
    limits: 100000/day sliding_window
    shadow_mode: true
  - key: quota
    limits: 90000/day fixed_window align first_hit
    quota_mode: true
  - key: spent
    limits: 1/day
    quota_mode: true
"""
SHAPES: dict[str, tuple[dict[str, str], ...]] = {
    "single": ({"single": "k"},),
    "several": ({"several": "k"},),
    "together": ({"single": "k"}, {"several": "k"}, {"shadow": "k"}),
    "quota": ({"single": "k"}, {"quota": "k"}, {"shadow": "k"}),
}


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[RedisStore]:
    async with RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s") as made:
        yield made


async def hurried(calls: int, call: Callable[[int], Awaitable[Any]]) -> list[Any]:
    """Half of them are cancelled, after none, one or some turns of the loop, or some time."""
    chance, answers = random.Random(7), []

    async def one(number: int) -> None:
        answers.append((number, await call(number)))

    for start in range(0, calls, 20):
        tasks = [asyncio.create_task(one(n)) for n in range(start, start + 20)]
        for task in tasks[::2]:
            if chance.random() < 0.5:
                for _ in range(chance.randint(0, 4)):
                    await asyncio.sleep(0)
            else:
                await asyncio.sleep(chance.random() * 0.0006)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert 0 < len(answers) < calls, "some must have been cancelled"
    return answers


async def used(gate: AsyncGate, expected: dict[str, int]) -> dict[str, int]:
    """What is taken, by limit, when all refunds are through."""

    async def look() -> dict[str, int]:
        verdict = await gate.check(*[Descriptor.of({key: "k"}, None, 0) for key in expected])
        return {
            key: status.decision.limit.burst - status.decision.remaining
            for key, status in zip(expected, verdict.statuses, strict=True)
            if status.decision is not None
        }

    return await when_settled(look, expected)


async def remaining(limiter: AsyncLimiter, expected: int) -> int:
    async def look() -> int:
        return (await limiter.peek("k")).remaining

    return await when_settled(look, expected)


async def when_settled(look: Callable[[], Awaitable[T]], expected: T) -> T:
    """Answers of those who left may be under way, and refunds are sent when they have come."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            while await look() != expected:
                await asyncio.sleep(0.005)
    return await look()


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_cancelled_check_takes_nothing(store: RedisStore, shape: str) -> None:
    gate, asked = AsyncGate.from_rules(RULES, store), SHAPES[shape]
    answers = await hurried(600, lambda _: gate.check(*asked))
    assert all(verdict for _, verdict in answers)
    keys = [key for descriptor in asked for key in descriptor]
    expected = dict.fromkeys(keys, len(answers))
    assert await used(gate, expected) == expected


async def test_a_check_that_is_cancelled_while_it_gives_back_keeps_nothing(
    store: RedisStore,
) -> None:
    """A spent quota refuses; what was taken beside it goes back, whoever waits for that."""
    gate = AsyncGate.from_rules(RULES, store)
    await gate.check({"spent": "k"})
    asked = ({"single": "k"}, {"several": "k"}, {"spent": "k"})
    answers = await hurried(300, lambda _: gate.check(*asked))
    assert not any(verdict for _, verdict in answers)
    expected = {"single": 0, "several": 0}
    assert await used(gate, expected) == expected


async def test_a_cancelled_batch_takes_nothing(store: RedisStore) -> None:
    gate = AsyncGate.from_rules(RULES, store)
    api, asked = CheckApi(Service(gate)), HttpRequest("127.0.0.1")
    asked.body = b'{"checks": [' + b",".join([b'{"descriptors": [{"single": "k"}]}'] * 5) + b"]}"

    async def batch(_: int) -> Any:
        answer = api(asked)
        assert not isinstance(answer, bytes)
        return await answer  # type: ignore[misc]

    answers = await hurried(200, batch)
    expected = {"single": 5 * len(answers)}
    assert await used(gate, expected) == expected


@pytest.mark.parametrize("keys", [["single"], ["single", "several"], ["single", "shadow"]])
async def test_a_call_of_envoy_that_is_cancelled_takes_nothing(
    store: RedisStore, keys: list[str]
) -> None:
    """The short way, a group, and the general way."""
    pytest.importorskip("google.protobuf")
    from service import rls_messages

    gate = AsyncGate.from_rules(RULES, store)
    service = Service(gate)
    entries = [{"entries": [{"key": key, "value": "k"}]} for key in keys]
    message = rls_messages.encode({"domain": "api", "descriptors": entries})

    async def call(_: int) -> Any:
        return await service.rate_limit(message)  # type: ignore[misc]

    answers = await hurried(300, call)
    expected = dict.fromkeys(keys, len(answers))
    assert await used(gate, expected) == expected


async def test_a_cancelled_settlement_happens_or_says_that_it_did_not(store: RedisStore) -> None:
    limiter = AsyncLimiter("1000000/year", store)
    held = [await limiter.reserve("k", cost=10) for _ in range(400)]

    async def settle(number: int) -> None:
        await held[number].settle(3 if number % 3 else 15)

    await hurried(400, settle)
    settled = [reservation.settled for reservation in held]
    expected = sum((3 if n % 3 else 15) if done else 10 for n, done in enumerate(settled))
    assert await remaining(limiter, 1_000_000 - expected) == 1_000_000 - expected
    for reservation in held:
        if not reservation.settled:
            await reservation.settle(0)


async def test_a_block_that_is_cancelled_twice_gives_back(store: RedisStore) -> None:
    limiter = AsyncLimiter("1000000/year", store)

    async def block() -> None:
        async with limiter.reserve("k", cost=10):
            await asyncio.sleep(60)

    for turns in range(40):
        task = asyncio.create_task(block())
        while not (await limiter.peek("k")).remaining < 1_000_000:
            pass
        task.cancel()
        for _ in range(turns % 5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await remaining(limiter, 1_000_000) == 1_000_000


async def test_cancelled_refunds_happen(store: RedisStore) -> None:
    limiter = AsyncLimiter("1000000/year", store)
    await limiter.hit("k", cost=1_000)
    begun = 0

    async def refund(number: int) -> None:
        nonlocal begun
        begun += 1
        await limiter.refund("k")

    await hurried(400, refund)
    assert await remaining(limiter, 999_000 + begun) == 999_000 + begun
