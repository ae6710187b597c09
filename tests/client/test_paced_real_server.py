"""The real thing: sockets, uvicorn, and clients that do not know each other."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import httpx
import pytest
import requests
from requests.adapters import HTTPAdapter

from client.served import serving
from penstock.client import (
    AsyncPacedTransport,
    NotSent,
    PacedAdapter,
    PacedMiddleware,
    PacedTransport,
)
from stores.machine import Watched

pytestmark = pytest.mark.realtime


async def test_fifty_clients_against_one_limit() -> None:
    clients, each, rate = 50, 11, 100
    with serving(f"{rate}/second") as served:
        done: list[int] = []

        async def work() -> None:
            # Without certificates: to read them takes longer than a call.
            plain = httpx.AsyncHTTPTransport(verify=False)
            transport = AsyncPacedTransport(timeout=None, retries=20, transport=plain)
            async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
                for _ in range(each):
                    done.append((await client.get(served.url)).status_code)

        with Watched() as machine:
            began = time.monotonic()
            await asyncio.gather(*(work() for _ in range(clients)))
            seconds = machine.took(began)
    ideal = (clients * each - rate) / rate
    late = served.refused(after=2)
    print(
        f"{clients} clients, {len(done)} calls in {seconds:.2f} s, ideal {ideal:.2f} s;"
        f" refused {served.refused()} of {len(served.hits)}, {late} of them after 2 s"
    )
    assert done == [200] * clients * each
    # A second more, as the machine may be busy with something else.
    assert seconds <= 1.25 * ideal + 1
    assert late <= 0.02 * len(done)
    assert served.refused() <= 2 * clients


def _httpx_tasks(url: str, calls: int) -> list[int]:
    async def main() -> list[int]:
        async with httpx.AsyncClient(transport=AsyncPacedTransport(), trust_env=False) as client:
            done = await asyncio.gather(*(client.get(url) for _ in range(calls)))
        return [each.status_code for each in done]

    return asyncio.run(main())


def _httpx_threads(url: str, calls: int) -> list[int]:
    with (
        httpx.Client(transport=PacedTransport(), trust_env=False) as client,
        ThreadPoolExecutor(calls) as pool,
    ):
        return [each.status_code for each in pool.map(client.get, [url] * calls)]


def _requests_threads(url: str, calls: int) -> list[int]:
    with requests.Session() as session, ThreadPoolExecutor(calls) as pool:
        session.trust_env = False
        session.mount("http://", PacedAdapter())
        return [each.status_code for each in pool.map(session.get, [url] * calls)]


def _aiohttp_tasks(url: str, calls: int) -> list[int]:
    async def main() -> list[int]:
        async with aiohttp.ClientSession(middlewares=[PacedMiddleware()]) as session:

            async def call() -> int:
                async with session.get(url) as response:
                    await response.read()
                    return response.status

            return await asyncio.gather(*(call() for _ in range(calls)))

    return asyncio.run(main())


@pytest.mark.parametrize("call", [_httpx_tasks, _httpx_threads, _requests_threads, _aiohttp_tasks])
def test_calls_at_once_all_succeed(call: Callable[[str, int], list[int]]) -> None:
    calls, rate = 100, 40
    with serving(f"{rate}/second burst 20") as served, Watched() as machine:
        began = time.monotonic()
        statuses = call(served.url, calls)
        seconds = machine.took(began)
    ideal = (calls - 20) / rate
    print(f"{calls} calls in {seconds:.2f} s, ideal {ideal:.2f} s, {served.refused()} refused")
    assert statuses == [200] * calls
    assert seconds <= 1.2 * ideal + 1
    assert served.refused() <= 15, "the first calls, and a few"


def test_a_refused_call_gives_its_connection_back() -> None:
    with serving("5/second burst 2") as served:
        with httpx.Client(transport=PacedTransport(learn=False), trust_env=False) as client:
            for _ in range(4):
                assert client.get(served.url).text == "welcome"
        refused = served.refused()
        assert refused > 0
        assert len(served.connections) == 1, "one connection for all of it"


def test_requests_waits_and_tries_again() -> None:
    with serving("5/second burst 2") as served, requests.Session() as session:
        session.trust_env = False
        adapter = PacedAdapter(learn=False, adapter=HTTPAdapter(pool_maxsize=1))
        session.mount("http://", adapter)
        tries = []
        for _ in range(4):
            response = session.get(served.url)
            assert (response.status_code, response.text) == (200, "welcome")
            tries.append(response.penstock.count)  # type: ignore[attr-defined]
        assert len(served.connections) == 1, "one connection for all of it"
        # A body that cannot be sent twice: the refusal itself comes back, whole.
        while (response := session.post(served.url, data=iter([b"x"]))).status_code == 200:
            pass
        assert response.status_code == 429
        assert len(response.text) == 90_000
        assert sum(tries) > 4


async def test_aiohttp_waits_and_tries_again() -> None:
    # Two sessions, one middleware: they wait in one queue.
    paced = PacedMiddleware(learn=False)
    with serving("5/second burst 2") as served:
        async with (
            aiohttp.ClientSession(middlewares=[paced]) as one,
            aiohttp.ClientSession(middlewares=[paced]) as two,
        ):
            tries = []
            for session in (one, two, one, two):
                async with session.put(served.url, json={"n": 1}) as response:
                    assert (response.status, await response.text()) == (200, "welcome")
                    tries.append(response.penstock.count)  # type: ignore[attr-defined]
            assert len(served.connections) == 2, "a refused call gives its connection back"
            assert served.bodies == [b'{"n": 1}'] * sum(tries)
            assert sum(tries) > 4

            async def parts() -> AsyncIterator[bytes]:
                yield b"x"

            # A body that cannot be sent twice: the refusal itself comes back, whole.
            while (response := await one.put(served.url, data=parts())).status == 200:
                response.release()
            assert response.status == 429
            assert len(await response.read()) == 90_000


async def test_aiohttp_is_told_in_its_own_words() -> None:
    with serving("5/second") as served:
        paced = PacedMiddleware("1/minute", timeout="1s")
        async with aiohttp.ClientSession(middlewares=[paced]) as session:
            (await session.get(served.url)).release()
            with pytest.raises(aiohttp.ServerTimeoutError, match="its local limit") as caught:
                await session.get(served.url)
    assert isinstance(caught.value, NotSent)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_requests_paces_itself() -> None:
    with serving("50/second burst 20") as served, requests.Session() as session:
        session.trust_env = False
        session.mount("http://", PacedAdapter(limit="200/second"))
        statuses = [session.get(served.url).status_code for _ in range(60)]
        assert statuses == [200] * 60
        print(f"requests: 60 calls, {served.refused()} refused")
        assert served.refused() <= 2
