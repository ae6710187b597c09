"""Many calls at once through a fresh transport: all succeed, in time, and few are refused."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.script import URL
from client.volley import (
    Headers,
    headers,
    nothing,
    only_remaining,
    only_retry_after,
    volley,
)
from penstock.client import AsyncPacedTransport, Retries
from penstock.client.pacer import FIRST_CALLS, SILENCE
from penstock.testing import FakeClock

SAYS: list[Headers] = [headers, only_remaining, only_retry_after, nothing]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("limit", "calls"),
    [("10/second burst 10", 100), ("10/second burst 10", 1000), ("50/second", 100),
     ("50/second", 1000)],
)  # fmt: skip
async def test_all_succeed_in_time(limit: str, calls: int, seed: int) -> None:
    report = await volley(limit, calls, seed)
    print(report)
    assert report.statuses == [200] * calls
    assert report.seconds <= 1.2 * report.ideal
    assert report.refused() == 0


@pytest.mark.parametrize("say", SAYS)
async def test_a_limit_that_others_have_used_up(say: Headers) -> None:
    report = await volley("50/second", 1000, 1, say, spent=True)
    print(say.__name__, report)
    assert report.statuses == [200] * 1000
    assert report.seconds <= 1.2 * 20
    assert report.refused() <= 60, "the first calls, and a few"


@settings(max_examples=60)
@given(
    st.sampled_from(["10/second", "50/second", "20/10s burst 5", "30/3s sliding_window"]),
    st.integers(1, 120),
    st.sampled_from(SAYS),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_whatever_the_server_says_all_succeed(
    limit: str, calls: int, say: Headers, spent: bool, seed: int
) -> None:
    report = asyncio.run(volley(limit, calls, seed, say, spent))
    assert report.statuses == [200] * calls
    assert sum(tries.count for tries in report.tries) == len(report.hits)
    assert report.refused() <= calls + 10


async def test_calls_that_were_refused_together_return_in_order() -> None:
    clock = FakeClock()
    seen: list[int] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        seen.append(int(request.url.path.strip("/")))
        first = len(seen) <= FIRST_CALLS
        await clock.sleep_async(0.01)
        if first:
            return httpx.Response(429, headers={"Retry-After": "1"})
        return httpx.Response(200)

    transport = AsyncPacedTransport(
        transport=httpx.MockTransport(answer), clock=clock, chance=lambda: 0.0
    )
    async with httpx.AsyncClient(transport=transport, base_url="http://a") as it:
        await asyncio.gather(*(it.get(f"/{number}") for number in range(20)))
    assert seen[:FIRST_CALLS] == list(range(10))
    # The call that was next when they returned stays the next one.
    assert seen[FIRST_CALLS:] == [10, *range(10), *range(11, 20)]


async def test_only_the_first_of_them_uses_up_its_retry() -> None:
    report = await volley("10/second", 100, 1, only_retry_after, spent=True, retries=1)
    print(report)
    assert report.statuses == [200] * 100


async def test_a_slow_server_gets_twice_as_many_after_each_silence() -> None:
    clock = FakeClock()
    began, seen = clock.now(), []

    async def answer(request: httpx.Request) -> httpx.Response:
        seen.append((clock.now() - began) / 1e9)
        await clock.sleep_async(30)
        return httpx.Response(200)

    transport = AsyncPacedTransport(transport=httpx.MockTransport(answer), clock=clock)
    async with httpx.AsyncClient(transport=transport) as it:
        await asyncio.gather(*(it.get(URL) for _ in range(100)))
    steps = [0.0] * 10 + [SILENCE] * 10 + [2 * SILENCE] * 20 + [3 * SILENCE] * 40
    assert seen == pytest.approx(steps + [4 * SILENCE] * 20)


async def test_calls_whose_time_ends_in_the_queue_are_not_sent() -> None:
    """Neither are they all sent when it ends."""
    report = await volley("10/second", 300, 1, timeout=10)
    assert set(report.statuses) == {200}
    assert 100 <= len(report.statuses) <= 110
    assert len(report.errors) == 300 - len(report.statuses)
    assert report.refused() == 0
    assert report.seconds <= 10.1


async def test_a_refused_call_whose_time_ends_in_the_queue_gets_its_refusal() -> None:
    report = await volley("1/second burst 1", 10, 1, only_retry_after, timeout=4)
    assert set(report.statuses) == {200, 429}
    assert report.seconds <= 4.1


@pytest.mark.parametrize(
    ("method", "status", "retries", "sent"),
    [
        ("GET", 429, 5, 10),
        ("GET", 429, 0, 5),
        ("POST", 429, 5, 5),
        ("POST", 429, Retries(methods=["POST"]), 10),
        # It is overloaded, which is no news of a limit: every one of them counts.
        ("GET", 503, Retries(floor=2, budget=0), 7),
    ],
)
async def test_what_returns_to_the_queue(
    method: str, status: int, retries: Retries | int, sent: int
) -> None:
    clock = FakeClock()
    seen = 0

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal seen
        seen += 1
        refused = seen <= 5
        await clock.sleep_async(0.01)
        return httpx.Response(status if refused else 200, headers={"Retry-After": "1"})

    transport = AsyncPacedTransport(
        transport=httpx.MockTransport(answer), clock=clock, retries=retries
    )
    async with httpx.AsyncClient(transport=transport) as it:
        done = await asyncio.gather(*(it.request(method, URL) for _ in range(5)))
    assert seen == sent
    assert [each.status_code for each in done].count(200) == sent - 5
