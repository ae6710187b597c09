"""The real thing: sockets, uvicorn, and clients that do not know each other."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
import requests
from requests.adapters import HTTPAdapter

from client.served import serving
from penstock.client import AsyncPacedTransport, PacedAdapter, PacedTransport
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


def test_requests_paces_itself() -> None:
    with serving("50/second burst 20") as served, requests.Session() as session:
        session.trust_env = False
        session.mount("http://", PacedAdapter(limit="200/second"))
        statuses = [session.get(served.url).status_code for _ in range(60)]
        assert statuses == [200] * 60
        print(f"requests: 60 calls, {served.refused()} refused")
        assert served.refused() <= 2
