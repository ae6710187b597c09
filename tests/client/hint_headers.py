"""What a server with a limit answers, written by hand, and a crowd of clients that ask it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

import httpx

from penstock import Decision, Limit, Limiter, MemoryStore
from penstock.client import AsyncPacedTransport, Tries
from penstock.testing import FakeClock

BUCKETS = ("token_bucket", "leaky_bucket")


def headers(decision: Decision) -> dict[str, str]:
    """The IETF fields of one policy, and ``Retry-After`` on a refusal."""
    limit = decision.limit
    bucket = limit.algorithm in BUCKETS
    quota = limit.burst if bucket else limit.amount
    window = limit.period_ns / 1e9 * (quota / limit.amount)
    reset = decision.reset_after
    if not decision and decision.retry_after is not None:
        reset = decision.retry_after
    elif bucket and decision.remaining == 0:
        reset -= (quota - 1) * limit.interval_ns / 1e9
    hints = {
        "RateLimit-Policy": f'"default";q={quota};w={max(1, ceil(window))}',
        "RateLimit": f'"default";r={decision.remaining};t={max(0, ceil(reset))}',
    }
    if not decision and decision.retry_after is not None:
        hints["Retry-After"] = str(max(1, ceil(decision.retry_after)))
    return hints


@dataclass
class Report:
    """What came of a crowd."""

    limit: Limit
    calls: int
    seconds: float = 0.0
    hits: list[tuple[float, bool]] = field(default_factory=list)
    tries: list[Tries] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    @property
    def ideal(self) -> float:
        """The least time in which so many calls fit in the limit."""
        period = self.limit.period_ns / 1e9
        if self.limit.algorithm in BUCKETS:
            return (self.calls - self.limit.burst) * period / self.limit.amount
        return (ceil(self.calls / self.limit.amount) - 1) * period

    def refused(self, after: float = 0.0) -> int:
        return sum(not passed for when, passed in self.hits if when >= after)

    def __str__(self) -> str:
        return (
            f"{self.limit}: {self.calls} calls in {self.seconds:.1f} s, ideal {self.ideal:.1f} s"
            f" (x {self.seconds / self.ideal:.2f}); refused {self.refused()} of {len(self.hits)},"
            f" {self.refused(after=3)} of them after 3 s"
        )


class LimitedServer(httpx.AsyncBaseTransport):
    """A server that is not there: some milliseconds away, with a limit for all callers together."""

    def __init__(
        self,
        report: Report,
        clock: FakeClock,
        chance: random.Random,
        say: Callable[[Decision], dict[str, str]] = headers,
    ) -> None:
        self._limiter = Limiter(report.limit, MemoryStore(clock=clock))
        self._report = report
        self._clock = clock
        self._began = clock.now()
        self._chance = chance
        self._say = say

    def use_up(self) -> None:
        while self._limiter.hit("everybody"):
            pass

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self._travel()
        decision = self._limiter.hit("everybody")
        self._report.hits.append(((self._clock.now() - self._began) / 1e9, bool(decision)))
        await self._travel()
        return httpx.Response(200 if decision else 429, headers=self._say(decision))

    async def _travel(self) -> None:
        await self._clock.sleep_async(self._chance.uniform(0.002, 0.008))


async def crowd(text: str, clients: int, each: int, seed: int) -> Report:
    """So many clients that do not know each other, each with so many calls to make."""
    clock, chance = FakeClock(), random.Random(seed)
    report = Report(Limit.parse(text), clients * each)
    server = LimitedServer(report, clock, chance)
    began = clock.now()

    async def work() -> None:
        transport = AsyncPacedTransport(
            transport=server, timeout=None, retries=20, clock=clock, chance=chance.random
        )
        async with httpx.AsyncClient(transport=transport) as client:
            for _ in range(each):
                response = await client.get("http://api.example.com/")
                assert response.status_code == 200
                report.tries.append(response.extensions["penstock"])

    await asyncio.gather(*(work() for _ in range(clients)))
    report.seconds = (clock.now() - began) / 1e9
    return report
