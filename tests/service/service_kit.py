"""What tests of the service share: gates, an observer, and a store that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from penstock import MemoryStore
from penstock.async_gate import AsyncGate
from penstock.decision import Decision
from penstock.errors import StoreUnavailable
from penstock.rules.deciding.verdict import Verdict
from penstock.service.service import Observer
from penstock.testing import FakeClock

USER = "{domain: api, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 3}}]}"


def gate_of(rules: str, clock: FakeClock | None = None, store: Any = None) -> AsyncGate:
    clock = clock or FakeClock()
    gate = AsyncGate.from_rules(rules, store or MemoryStore(clock=clock), clock=clock)
    assert isinstance(gate, AsyncGate)
    return gate


def at_once(answer: bytes | Awaitable[bytes]) -> bytes:
    assert isinstance(answer, bytes)
    return answer


class Watching(Observer):
    def __init__(self) -> None:
        self.seen: list[tuple[str, bool, list[str], float]] = []

    def decided(self, domain: str, verdict: Verdict, seconds: float) -> None:
        reasons = [status.reason for status in verdict.statuses]
        self.seen.append((domain, verdict.allowed, reasons, seconds))


class Slow(MemoryStore):
    """Answers in the next turn of the loop, and only to those who await."""

    waits = True
    broken = False

    def make_counters(self, limit: Any) -> Any:
        counters = super().make_counters(limit)
        return SlowCounters(self, counters)

    async def hit_each_async(self, wanted: Any) -> list[Decision]:  # type: ignore[override]
        await asyncio.sleep(0)
        if self.broken:
            raise StoreUnavailable("no answer")
        return self.hit_each([(each.inner, key, cost) for each, key, cost in wanted])


class SlowCounters:
    def __init__(self, store: Slow, inner: Any) -> None:
        self.store = store
        self.inner = inner
        self.limit = inner.limit

    async def submit(self, verb: str, *args: Any) -> Any:
        await asyncio.sleep(0)
        if self.store.broken:
            raise StoreUnavailable("no answer")
        return getattr(self.inner, verb)(*args)
