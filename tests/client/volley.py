"""Many calls at once through one fresh transport, to a server that is not there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import httpx

from client.hint_headers import LimitedServer, Report, headers
from penstock import Decision, Limit
from penstock.client import AsyncPacedTransport
from penstock.testing import FakeClock

Headers = Callable[[Decision], dict[str, str]]


def only_retry_after(decision: Decision) -> dict[str, str]:
    return {name: text for name, text in headers(decision).items() if name == "Retry-After"}


def only_remaining(decision: Decision) -> dict[str, str]:
    """What is left and when that changes, but not of how many."""
    hints = {
        "X-RateLimit-Remaining": str(decision.remaining),
        "X-RateLimit-Reset": headers(decision)["RateLimit"].rpartition("=")[2],
    }
    return hints | only_retry_after(decision)


def nothing(decision: Decision) -> dict[str, str]:
    return {}


async def volley(
    text: str, calls: int, seed: int, say: Headers = headers, spent: bool = False, **options: Any
) -> Report:
    """``spent``: the limit is used up when the calls come."""
    clock, chance = FakeClock(), random.Random(seed)
    report = Report(Limit.parse(text), calls)
    server = LimitedServer(report, clock, chance, say)
    if spent:
        server.use_up()
    began = clock.now()
    options = {"timeout": None} | options
    transport = AsyncPacedTransport(transport=server, clock=clock, chance=chance.random, **options)

    async def call(client: httpx.AsyncClient) -> None:
        try:
            response = await client.get("http://api.example.com/")
        except httpx.TimeoutException as error:
            report.errors.append(error)
            return
        report.statuses.append(response.status_code)
        report.tries.append(response.extensions["penstock"])

    async with httpx.AsyncClient(transport=transport) as client:
        await asyncio.gather(*(call(client) for _ in range(calls)))
    report.seconds = (clock.now() - began) / 1e9
    return report
