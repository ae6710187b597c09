"""Budgets, wrong options, and what must be installed."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import subprocess
import sys
from datetime import timedelta
from typing import Any

import aiohttp
import httpx
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from client.script import URL, Answer, Script, client, sync_client
from penstock import Limiter, LimitError
from penstock.client import (
    AsyncPacedTransport,
    NotSent,
    PacedAdapter,
    PacedMiddleware,
    PacedTransport,
    Retries,
)
from penstock.client.aiohttp import AiohttpNotSent
from penstock.client.httpx import HttpxNotSent
from penstock.client.pacer import FIRST_CALLS
from penstock.client.requests import RequestsNotSent
from penstock.client.retries import Budget

OK: Answer = (200, {})


# The budget --------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([OK, (429, {}), (429, {"Retry-After": "1"}), "down"]), min_size=1),
    st.integers(1, 60),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.1, 0.25, 1.0]),
)
def test_retries_never_exceed_the_budget(
    answers: list[Answer], calls: int, floor: int, budget: float
) -> None:
    script = Script(answers)
    retries = Retries(100, errors=True, floor=floor, budget=budget)
    with sync_client(script, retries=retries, timeout=None) as it:
        for call in range(1, calls + 1):
            with contextlib.suppress(httpx.ConnectError):
                it.get(URL)
            assert len(script.seen) - call <= floor + budget * call + 1e-6


async def test_a_server_that_refuses_everything_is_not_stormed() -> None:
    script = Script([(429, {})])
    calls = 500
    async with client(script, retries=Retries(50), timeout=None) as it:
        done = await asyncio.gather(*(it.get(URL) for _ in range(calls)))
    assert {each.status_code for each in done} == {429}
    print(f"{calls} calls, {len(script.seen)} requests")
    assert len(script.seen) <= calls * 1.1 + 10 + FIRST_CALLS
    plain = Script([(429, {})])
    async with client(plain, retries=Retries(5, budget=1, floor=calls), timeout=None) as it:
        await asyncio.gather(*(it.get(URL) for _ in range(calls)))
    assert len(plain.seen) > 2 * calls, "the budget is what made the difference"


def test_a_long_peace_does_not_pay_for_a_storm() -> None:
    budget = Budget(Retries(floor=10))
    for _ in range(100_000):
        budget.call()
    taken = 0
    while budget.take():
        taken += 1
    assert taken == 100


# What was said wrongly ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [PacedTransport, AsyncPacedTransport, PacedAdapter, PacedMiddleware]
)
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"limit": "ten"}, LimitError, "does not start with a number"),
        ({"limit": 10}, LimitError, "limit must be a limit such as '10/second'"),
        ({"limit": Limiter()}, LimitError, "no limit"),
        ({"key": "host"}, TypeError, "key must be a function of the request"),
        ({"timeout": -1}, ValueError, "timeout is a number of seconds"),
        ({"timeout": "soon"}, LimitError, "timeout 'soon' has an unknown unit"),
        ({"timeout": timedelta(seconds=-1)}, LimitError, "timeout must be above zero"),
        ({"retries": -1}, ValueError, "most must be a whole number of at least 0"),
        ({"retries": True}, ValueError, "most must be a whole number of at least 0"),
        ({"learn": 1}, TypeError, "learn must be True or False"),
        ({"clock": 1}, TypeError, "a clock has now"),
        ({"chance": 1}, TypeError, "chance must be a function"),
        ({"transport": 1, "adapter": 1}, TypeError, "must be like"),
    ],
)
def test_a_wrong_option_is_an_error_when_it_is_given(
    kind: type, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    known = inspect.signature(kind).parameters
    options = {name: value for name, value in options.items() if name in known}
    if not options:
        pytest.skip("a middleware has nothing that sends")
    with pytest.raises(error, match=message):
        kind(**options)


@pytest.mark.parametrize("timeout", [90, 90.0, "90s", "1m30s", timedelta(seconds=90)])
def test_a_timeout_is_a_duration(timeout: Any) -> None:
    script = Script([(429, {"Retry-After": "91"}), (429, {"Retry-After": "90"}), OK])
    with sync_client(script, timeout=timeout, chance=lambda: 0.0) as it:
        assert it.get(URL).status_code == 429
        script.clock.advance(91)
        assert it.get(URL).status_code == 200
    assert script.seen == [0, 91, 181]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"methods": "GET"}, TypeError, "methods must be a list such as"),
        ({"methods": [1]}, TypeError, "methods must be names such as 'GET', not 1"),
        ({"methods": None}, TypeError, "methods must be a list such as"),
        ({"errors": 1}, TypeError, "errors must be True or False"),
        ({"budget": 2}, ValueError, "budget must be a part of all calls"),
        ({"budget": -0.1}, ValueError, "budget must be a number of at least 0"),
        ({"floor": 1.5}, ValueError, "floor must be a whole number"),
        ({"first": float("nan")}, ValueError, "first must be a number of at least 0"),
        ({"longest": "1"}, ValueError, "longest must be a number of at least 0"),
    ],
)
def test_wrong_retries_are_an_error(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Retries(**options)


def test_retries_say_what_they_are() -> None:
    assert repr(Retries(3)) == "Retries(3, budget=0.1, floor=10)"
    said = repr(Retries(methods=["post"], errors=True))
    assert said == "Retries(5, methods=['POST'], errors=True, budget=0.1, floor=10)"


def test_a_key_must_be_a_key() -> None:
    with sync_client(Script([OK]), key=lambda request: None) as it, pytest.raises(TypeError):
        it.get(URL)


# What must be installed --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "works", "name", "hint"),
    [
        ("httpx", "PacedAdapter", "PacedTransport", "pip install 'penstock[client]'"),
        ("requests", "AsyncPacedTransport", "PacedAdapter", "pip install requests"),
        ("aiohttp", "PacedAdapter", "PacedMiddleware", "pip install 'penstock[client-aiohttp]'"),
    ],
)
def test_neither_library_is_needed_for_the_other(
    missing: str, works: str, name: str, hint: str
) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None
from penstock.client import batch, NotSent, Retries, {works}
try:
    from penstock.client import {name}
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.strip() == f"{name.removeprefix('Async')} needs {missing}: {hint}"


def test_httpx2_works_under_its_alias() -> None:
    code = """
import httpx2
httpx2.alias_httpx()
from penstock.client import PacedTransport, Retries
answers = [httpx2.Response(429), httpx2.Response(200)]
inner = httpx2.MockTransport(lambda request: answers.pop(0))
paced = PacedTransport(transport=inner, retries=Retries(first=0))
with httpx2.Client(transport=paced) as client:
    response = client.put("https://api.example.com", content=b"body")
print(response.status_code, response.extensions["penstock"].count)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("200 2", "")


def test_a_name_that_is_not_there() -> None:
    import penstock.client

    with pytest.raises(AttributeError, match="has no attribute 'Fast'"):
        _ = penstock.client.Fast
    assert {getattr(penstock.client, name).__name__ for name in penstock.client.__all__} == set(
        penstock.client.__all__
    )


def test_errors_belong_to_both_families() -> None:
    assert issubclass(HttpxNotSent, (NotSent, httpx.TimeoutException))
    assert issubclass(RequestsNotSent, (NotSent, requests.Timeout))
    assert issubclass(AiohttpNotSent, (NotSent, aiohttp.ServerTimeoutError, TimeoutError))


# The other client --------------------------------------------------------------------------


def test_a_transport_for_tasks_in_a_client_for_threads_says_what_to_write() -> None:
    message = r"write httpx\.Client\(transport=PacedTransport\(\.\.\.\)\)"
    client = httpx.Client(transport=AsyncPacedTransport())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=message):
        client.get(URL)
    client.close()
    other = httpx.Client(transport=AsyncPacedTransport())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=message), other:
        pass


async def test_a_transport_for_threads_in_a_client_for_tasks_says_what_to_write() -> None:
    message = r"write httpx\.AsyncClient\(transport=AsyncPacedTransport\(\.\.\.\)\)"
    client = httpx.AsyncClient(transport=PacedTransport())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=message):
        await client.get(URL)
    await client.aclose()
    with pytest.raises(TypeError, match=message):
        async with httpx.AsyncClient(transport=PacedTransport()):  # type: ignore[arg-type]
            pass
