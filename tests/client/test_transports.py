"""Many calls through one transport: their order, their limits, and what is never sent."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import requests

from client.script import URL, Answer, Httpx, Requests, Script, client, sync_client
from penstock import AsyncLimiter, Limit, Limiter, MemoryStore, PenstockError
from penstock.client import (
    AsyncPacedTransport,
    NotSent,
    PacedAdapter,
    PacedTransport,
)
from penstock.testing import FakeClock

OK: Answer = (200, {})


def hints(remaining: int, reset: int, quota: int = 100, window: int = 600, **more: str) -> Answer:
    fields = {
        "RateLimit": f'"p";r={remaining};t={reset}',
        "RateLimit-Policy": f'"p";q={quota};w={window}',
    }
    return 200, fields | {name.replace("_", "-"): text for name, text in more.items()}


LIMITS: list[Callable[[FakeClock], Any]] = [
    lambda clock: "2/second",
    lambda clock: Limit(2, "second"),
    lambda clock: Limiter("2/second", MemoryStore(clock=clock)),
    lambda clock: AsyncLimiter("2/second", MemoryStore(clock=clock)),
]


@pytest.mark.parametrize("limit", LIMITS)
async def test_the_local_limit_is_kept_first_come_first_served(
    limit: Callable[[FakeClock], Any],
) -> None:
    script = Script([OK])
    done: list[int] = []

    async def call(number: int) -> None:
        await it.get(URL)
        done.append(number)

    async with client(script, limit(script.clock)) as it:
        await asyncio.gather(*(call(number) for number in range(6)))
    assert script.seen == [0, 0, 0.5, 1, 1.5, 2]
    assert done == list(range(6))


@pytest.mark.parametrize("limit", LIMITS)
def test_the_same_without_tasks(limit: Callable[[FakeClock], Any]) -> None:
    script = Script([OK])
    with sync_client(script, limit(script.clock)) as it:
        for _ in range(6):
            it.get(URL)
    assert script.seen == [0, 0, 0.5, 1, 1.5, 2]


def test_a_paced_limit_leaves_evenly_however_many_come() -> None:
    script = Script([OK])

    async def main() -> None:
        async with client(script, "2/second leaky_bucket burst 1") as it:
            await asyncio.gather(*(it.get(URL) for _ in range(5)))

    asyncio.run(main())
    assert script.seen == [0, 0.5, 1, 1.5, 2]


async def test_hosts_have_limits_of_their_own_unless_a_key_says_otherwise() -> None:
    urls = [URL, "https://other.example.com", "http://api.example.com", "https://api.example.com:8"]
    apart, together = Script([OK]), Script([OK])
    async with client(apart, "1/second") as it:
        await asyncio.gather(*(it.get(url) for url in urls))
        await it.get("https://api.example.com:443/elsewhere")
    assert apart.seen == [0, 0, 0, 0, 1]
    async with client(together, "1/second", key=lambda request: "all") as it:
        await asyncio.gather(*(it.get(url) for url in urls))
    assert together.seen == [0, 1, 2, 3]


async def test_who_cannot_have_its_turn_in_time_is_told_at_once() -> None:
    script = Script([OK])
    async with client(script, "1/minute", timeout=30) as it:
        await it.get(URL)
        with pytest.raises(NotSent, match=r"^not sent to https://api.example.com:443: ") as caught:
            await it.get(URL)
    assert script.now == 0
    assert caught.value.retry_after == 60.0
    assert isinstance(caught.value, (httpx.TimeoutException, PenstockError))
    assert caught.value.request.url == URL
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.retry_after) == (str(caught.value), 60.0)


async def test_who_waits_behind_others_for_too_long_is_told_then() -> None:
    script = Script([OK])
    async with client(script, "1/second", timeout=2.5) as it:
        done = await asyncio.gather(*(it.get(URL) for _ in range(5)), return_exceptions=True)
    assert [type(each).__name__ for each in done] == ["Response"] * 3 + ["HttpxNotSent"] * 2
    assert script.now <= 2.5


def test_requests_is_told_in_its_own_words() -> None:
    script = Script([OK])
    with requests.Session() as session:
        session.trust_env = False
        adapter = PacedAdapter("1/minute", adapter=Requests(script), timeout=1, clock=script.clock)
        session.mount("https://", adapter)
        assert session.get(URL).connection is adapter  # type: ignore[attr-defined]
        with pytest.raises(requests.Timeout, match="its local limit is 1/minute") as caught:
            session.get(URL)
    assert isinstance(caught.value, NotSent)
    assert caught.value.request.url == URL
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


async def test_a_refusal_keeps_the_others_waiting_too() -> None:
    script = Script([(429, {"Retry-After": "10"}), OK])
    async with client(script, chance=lambda: 0.0) as it:
        await asyncio.gather(it.get(URL), it.get(URL))
        assert script.seen == [0, 0, 10]
    script = Script([(429, {"Retry-After": "10"}), OK])
    async with client(script, chance=lambda: 0.0, retries=0) as it:
        assert (await it.get(URL)).status_code == 429
        assert (await it.get(URL)).status_code == 200
    assert script.seen == [0, 10]


async def test_what_would_be_refused_is_not_sent() -> None:
    script = Script([(429, {"Retry-After": "100"}), OK])
    async with client(script, timeout=30) as it:
        assert (await it.get(URL)).status_code == 429
        for _ in range(3):
            with pytest.raises(NotSent, match="it was refused and asked to wait"):
                await it.get(URL)
        assert (await it.get("https://other.example.com")).status_code == 200
        script.clock.advance(90)
        assert (await it.get(URL)).status_code == 200
    assert script.seen == [0, 0, 100]


async def test_the_last_answer_is_kept_while_a_retry_waits() -> None:
    """Its turn does not come any more: it gets the last response."""
    script = Script([(429, {"Retry-After": "5"}), (429, {"Retry-After": "50"})])
    async with client(script, timeout=20, chance=lambda: 0.0) as it:
        first, second = await asyncio.gather(it.get(URL), it.get(URL))
    assert [first.status_code, second.status_code] == [429, 429]
    assert first.content == second.content == b"said"
    assert first.extensions["penstock"].count + second.extensions["penstock"].count == 2
    assert first.headers["Retry-After"] == "5"


async def test_it_paces_itself_before_it_is_refused() -> None:
    script = Script(
        [hints(4, 9), hints(3, 7), hints(2, 4), hints(1, 2), hints(0, 1), hints(99, 600)]
    )
    async with client(script) as it:
        for _ in range(6):
            await it.get(URL)
    # 4 in 8.5 s, 3 in 6.5 s, 2 in 3.5 s, 1 in 1.5 s; the next window, not at its first moment
    assert script.seen == pytest.approx([0, 2.125, 4.291667, 6.041667, 7.541667, 11.541667])
    unpaced = Script(script.answers)
    async with client(unpaced, learn=False) as it:
        for _ in range(6):
            await it.get(URL)
    assert unpaced.seen == [0] * 6


async def test_plenty_is_not_paced() -> None:
    script = Script([hints(4999 - n, 3600, 5000, 3600) for n in range(100)])
    async with client(script) as it:
        for _ in range(100):
            await it.get(URL)
    assert script.now == 0


class Held(Httpx):
    """Answers to ``/slow`` are held back until they are released."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.release = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if request.url.path == "/slow":
            await self.release.wait()
        return response


def held(script: Script) -> tuple[httpx.AsyncClient, Held]:
    inner = Held(script)
    transport = AsyncPacedTransport(
        transport=inner, clock=script.clock, chance=lambda: 0.5, timeout=None
    )
    return httpx.AsyncClient(transport=transport, base_url="https://api.example.com"), inner


async def test_it_knows_how_many_of_its_own_are_under_way() -> None:
    script = Script([hints(5, 10)])
    it, inner = held(script)
    async with it:
        slow = [asyncio.create_task(it.get("/slow")) for _ in range(3)]
        await asyncio.sleep(0.01)
        await it.get("/")  # five are left, of which three are on their way
        began = script.now
        await it.get("/")
        assert script.now - began == pytest.approx(9.5 / 2)
        inner.release.set()
        await asyncio.gather(*slow)
        began = script.now
        await it.get("/")
        assert script.now - began < 9.5 / 2


async def test_who_waits_hears_of_better_news() -> None:
    """Nothing would be left for ten minutes, were not for an answer that comes in."""
    script = Script([hints(99, 600), hints(1, 600), hints(99, 600)])
    it, inner = held(script)
    async with it:
        slow = asyncio.create_task(it.get("/slow"))
        await asyncio.sleep(0.01)
        await it.get("/")
        waiting = asyncio.create_task(it.get("/"))
        await asyncio.sleep(0)
        inner.release.set()
        await asyncio.gather(slow, waiting)
    assert script.now < 1


async def test_who_is_cancelled_under_way_is_not_counted_any_more() -> None:
    script = Script([OK])
    it, _ = held(script)
    async with it:
        slow = asyncio.create_task(it.get("/slow"))
        await asyncio.sleep(0.01)
        transport = it._transport
        assert isinstance(transport, AsyncPacedTransport)
        ((pacer, _),) = transport._caller._keys.values()
        assert pacer.under_way == 1
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        assert pacer.under_way == 0


async def test_a_guess_never_fails_a_call() -> None:
    """What is left is for an hour, and we have a second: then it is sent."""
    script = Script([hints(3, 3600, 100, 3600), hints(0, 3600, 100, 3600)])
    async with client(script, timeout=1) as it:
        for _ in range(4):
            assert (await it.get(URL)).status_code == 200
    assert len(script.seen) == 4


async def test_it_learns_from_refusals_alone() -> None:
    """A server that says nothing but no: ten a second, and a pause of a second."""
    clock = FakeClock()
    limiter = Limiter("10/second burst 10", MemoryStore(clock=clock))
    refused = 0

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal refused
        await clock.sleep_async(0.005)
        if limiter.hit("k"):
            return httpx.Response(200)
        refused += 1
        return httpx.Response(429, headers={"Retry-After": "1"})

    transport = AsyncPacedTransport(
        transport=httpx.MockTransport(answer), clock=clock, timeout=None, retries=20
    )
    began = clock.now()
    async with httpx.AsyncClient(transport=transport) as it:
        for _ in range(400):
            assert (await it.get(URL)).status_code == 200
    seconds = (clock.now() - began) / 1e9
    print(f"400 calls in {seconds:.1f} s, ideal 39.0 s, {refused} refused")
    assert seconds <= 1.4 * 39
    assert refused <= 0.04 * 400


@pytest.mark.parametrize("at", range(6))
async def test_a_cancelled_call_leaves_nothing_behind(at: int) -> None:
    script = Script([(429, {"Retry-After": "1"}), OK])
    async with client(script, "2/second", chance=lambda: 0.0) as it:
        tasks = [asyncio.create_task(it.get(URL)) for _ in range(6)]
        for _ in range(3 + at):
            await asyncio.sleep(0)
        cancelled = tasks[at].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        transport = it._transport
        assert isinstance(transport, AsyncPacedTransport)
        caller = transport._caller
    assert [isinstance(each, httpx.Response) for each in done] == [
        n != at or not cancelled for n in range(6)
    ]
    assert cancelled or at == 1
    assert len(caller._queues) == 0
    assert {pacer.under_way for pacer, _ in caller._keys.values()} == {0}


def test_threads_wait_in_one_line() -> None:
    script = Script([OK])
    lock = threading.Lock()

    class Locked(Httpx):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            with lock:
                return super().handle_request(request)

    done: list[int] = []
    transport = PacedTransport("50/second burst 1", transport=Locked(script))
    with httpx.Client(transport=transport) as it:

        def work() -> None:
            for _ in range(3):
                done.append(it.get(URL).status_code)

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    assert done == [200] * 15
    assert len(transport._caller._queues) == 0


def test_keys_that_say_nothing_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.calls.MOST_KEYS", 20)
    script = Script([OK])
    with sync_client(script) as it:
        for number in range(200):
            it.get(f"https://{number}.example.com")
        transport = it._transport
        assert isinstance(transport, PacedTransport)
        assert len(transport._caller._keys) <= 20
