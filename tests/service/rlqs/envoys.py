"""Envoys as they really behave (docs/howto/divide-a-limit-among-envoys.md), in virtual time.

A `World` has Envoys, services that share a bank, and messages on their way between them. Nothing
waits: time jumps from event to event.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from envoy.service.rate_limit_quota.v3 import rlqs_pb2

from penstock.async_gate import AsyncGate
from penstock.durations import MILLISECOND
from penstock.service.rlqs.bank import Bank, MemoryBank
from penstock.service.rlqs.service import RlqsService
from penstock.testing import FakeClock

DOMAIN = "envoys"
REPORT_EVERY = 5_000


@dataclass
class Assigned:
    """What Envoy does in a bucket. ``most`` 0 is DENY_ALL, None ALLOW_ALL."""

    most: int | None
    fill: int = 0
    interval: int = 0
    tokens: float = 0
    at: int = 0
    deadline: int = 0

    def level(self, now: int) -> float:
        assert self.most is not None
        refilled = self.tokens + self.fill * (now - self.at) / (self.interval * 1000)
        return min(self.most, refilled)


class EnvoyBucket:
    """A bucket in one Envoy."""

    def __init__(self, soft: bool = False) -> None:
        self.assigned: Assigned | None = None
        self.soft = soft
        self.allowed = self.denied = 0

    def assign(self, action: Any, now: int) -> None:
        ttl = action.assignment_time_to_live.seconds
        assert ttl >= 1
        assert not action.assignment_time_to_live.nanos
        deadline = now + ttl * 1000
        strategy = action.rate_limit_strategy
        kind = strategy.WhichOneof("strategy")
        before = self.live(now)
        if kind == "blanket_rule":
            self.assigned = Assigned(None if strategy.blanket_rule == 0 else 0, deadline=deadline)
            return
        assert kind == "token_bucket"
        bucket = strategy.token_bucket
        most, fill = bucket.max_tokens, bucket.tokens_per_fill.value
        interval = bucket.fill_interval.seconds
        assert most >= 1
        assert fill >= 1
        assert interval >= 1
        assert not bucket.fill_interval.nanos
        if before is None or not before.most or not before.fill:
            self.assigned = Assigned(most, fill, interval, most, now, deadline)
        elif (most, fill) == (before.most, before.fill):
            before.deadline = deadline  # a change of the interval alone is not noticed
        else:
            tokens = before.level(now) / before.most * most
            self.assigned = Assigned(most, fill, interval, tokens, now, deadline)

    def live(self, now: int) -> Assigned | None:
        if self.assigned is not None and now >= self.assigned.deadline:
            self.assigned = None
        return self.assigned

    def decide(self, now: int) -> bool:
        assigned = self.live(now)
        if assigned is None:
            allowed = self.soft
        elif assigned.most is None:
            allowed = True
        elif assigned.most == 0:
            allowed = False
        else:
            level = assigned.level(now)
            allowed = level >= 1 - 1e-9
            assigned.tokens, assigned.at = level - allowed, now
        self.allowed += allowed
        self.denied += not allowed
        return allowed


class Link:
    """A stream between an Envoy and a service: both ends, with delays. A `QuotaWire`."""

    def __init__(self, world: World, envoy: Envoy, service: RlqsService, can_prove: bool) -> None:
        self.world, self.envoy, self.can_prove = world, envoy, can_prove
        self.is_open = True
        self.arrives = 0  # when the last message to Envoy arrives: they stay in order
        self.stream = service.open(self, envoy.metadata, f"peer-{next(world.numbers)}")

    def send(self, message: bytes) -> None:
        if self.is_open:
            self.arrives = max(self.arrives, self.world.now + self.world.delay())
            self.world.at(self.arrives, lambda: self.deliver(message))

    def deliver(self, message: bytes) -> None:
        # A message in flight outlives its stream, but not until Envoy opens the next one.
        if self.envoy.link in (self, None):
            self.envoy.receive(rlqs_pb2.RateLimitQuotaResponse.FromString(message))
            self.world.delivered()

    def close(self, status: int = 0, reason: str = "") -> None:
        self.over()

    def confirm(self, delivered: Callable[[], None]) -> bool:
        if not self.can_prove:
            return False
        if self.world.chance.random() >= self.world.lost_proofs:
            back = max(self.arrives, self.world.now) + self.world.delay()
            self.world.at(back, lambda: delivered() if self.is_open else None)
        return True

    def over(self) -> None:
        if self.is_open:
            self.is_open = False
            self.stream.closed()
            self.envoy.link = None


class Envoy:
    def __init__(self, world: World, name: str, soft: bool = False) -> None:
        self.world, self.name, self.soft = world, name, soft
        self.metadata = {"x-node-id": name}
        self.buckets: dict[tuple[tuple[str, str], ...], EnvoyBucket] = {}
        self.link: Link | None = None
        self.alive = True
        self.received = 0
        world.at(world.now + world.chance.randrange(REPORT_EVERY), self.tick)

    def request(self, pairs: tuple[tuple[str, str], ...] = (("user", "a"),)) -> bool:
        world = self.world
        bucket = self.buckets.get(pairs)
        if bucket is not None:
            return bucket.decide(world.now)
        bucket = self.buckets[pairs] = EnvoyBucket(self.soft)
        allowed = bucket.decide(world.now)
        self.report([pairs])
        return allowed

    def tick(self) -> None:
        if self.alive:
            self.report(list(self.buckets))
            self.world.at(self.world.now + REPORT_EVERY, self.tick)

    def report(self, buckets: list[tuple[tuple[str, str], ...]]) -> None:
        if not buckets:
            return
        if self.link is None:
            self.link = self.world.connect(self)
            if self.link is None:
                return  # what was counted is reported with the next stream
            buckets = list(self.buckets)
        reports = rlqs_pb2.RateLimitQuotaUsageReports(domain=DOMAIN)
        for pairs in buckets:
            bucket = self.buckets[pairs]
            usage = reports.bucket_quota_usages.add()
            usage.bucket_id.bucket.update(dict(pairs))
            usage.num_requests_allowed, usage.num_requests_denied = bucket.allowed, bucket.denied
            bucket.allowed = bucket.denied = 0
        link, message = self.link, reports.SerializeToString()
        self.world.at(
            self.world.now + self.world.delay(),
            lambda: link.stream.receive(message) if link.is_open else None,
        )

    def receive(self, response: Any) -> None:
        if not self.alive:
            return
        for action in response.bucket_action:
            pairs = tuple(sorted(action.bucket_id.bucket.items()))
            if action.HasField("abandon_action"):
                self.buckets.pop(pairs, None)
            elif pairs in self.buckets:
                self.received += 1
                self.buckets[pairs].assign(action.quota_assignment_action, self.world.now)

    def kill(self) -> None:
        self.alive = False
        if self.link is not None:
            self.link.over()


class World:
    """Time, services with one bank, and Envoys."""

    def __init__(
        self, rules: str, *, servers: int = 1, seed: int = 1, can_prove: bool = True,
        longest_delay: int = 5,
    ) -> None:  # fmt: skip
        self.clock = FakeClock(10**15)
        self.chance = random.Random(seed)
        self.numbers = itertools.count()
        self.can_prove = can_prove
        self.longest_delay = longest_delay
        self.lost_proofs = 0.0
        self.delivered: Callable[[], None] = lambda: None
        self.events: list[tuple[int, int, Callable[[], Any]]] = []
        self.gate = AsyncGate.from_rules(rules)
        self.bank: Bank = MemoryBank(self.clock, first=True)
        self.services: list[RlqsService | None] = [self.new_service() for _ in range(servers)]
        self.envoys: list[Envoy] = []

    @property
    def now(self) -> int:
        return self.clock.now() // MILLISECOND

    def new_service(self) -> RlqsService:
        return RlqsService(self.gate, self, clock=self.clock, chance=self.chance.random)

    async def exchange(self, entries: Any) -> Any:
        """The bank of all services, which a test may replace."""
        return await self.bank.exchange(entries)

    async def close(self) -> None: ...

    def delay(self) -> int:
        return self.chance.randint(0, self.longest_delay)

    def at(self, due: int, call: Callable[[], Any]) -> None:
        heapq.heappush(self.events, (due, next(self.numbers), call))

    def envoy(self, name: str, soft: bool = False) -> Envoy:
        envoy = Envoy(self, name, soft)
        self.envoys.append(envoy)
        return envoy

    def connect(self, envoy: Envoy) -> Link | None:
        up = [service for service in self.services if service is not None]
        return Link(self, envoy, self.chance.choice(up), self.can_prove) if up else None

    def crash(self, index: int) -> None:
        """A server dies without a word, and its streams with it."""
        service, self.services[index] = self.services[index], None
        if service is None:
            return
        for stream in list(service.streams.values()):
            link: Any = stream.wire
            link.is_open = False
            link.envoy.link = None
        self.gate.unsubscribe(service._on_event)

    def restart(self, index: int) -> None:
        if self.services[index] is None:
            self.services[index] = self.new_service()

    def run_until(self, end: int) -> None:
        """Let everything happen that is due until ``end``, in milliseconds."""
        while True:
            self.settle()
            dues = [self.events[0][0]] if self.events else []
            for service in self.services:
                due = None if service is None else service.next_due()
                if due is not None:
                    dues.append(self.now + max(1, due))
            if not dues or min(dues) > end:
                break
            self.jump(max(self.now, min(dues)))
            while self.events and self.events[0][0] <= self.now:
                heapq.heappop(self.events)[2]()
        self.jump(end)

    def jump(self, moment: int) -> None:
        self.clock.advance_ns((moment - self.now) * MILLISECOND)

    def settle(self) -> None:
        """Let services do what is due now."""
        for _ in range(100):
            due = [each for each in self.services if each is not None and each.next_due() == 0]
            if not due:
                return
            for service in due:
                step = service.step()
                try:
                    while True:
                        step.send(None)
                except StopIteration:
                    pass
        raise AssertionError("a service is never done")


class Envelope:
    """The bucket that sees every request that was allowed; it must never be below zero."""

    def __init__(self, rate: float, burst: float, now: int) -> None:
        self.rate, self.burst, self.at = rate, burst, now
        self.level = burst
        self.lowest = burst
        self.admitted = 0

    def admit(self, now: int) -> None:
        self.level = min(self.burst, self.level + self.rate * (now - self.at) / 1000) - 1
        self.at = now
        self.admitted += 1
        self.lowest = min(self.lowest, self.level)

    def check(self, envoys: list[Envoy], now: int) -> None:
        """Whatever comes next: if all Envoys spent now what they have, it would not be too much.

        And together they refill no faster than the limit, and hold no more than its burst.
        """
        held = [
            bucket.live(now) for envoy in envoys if envoy.alive for bucket in envoy.buckets.values()
        ]
        live = [each for each in held if each is not None and each.most]
        tokens = sum(each.level(now) for each in live)
        level = min(self.burst, self.level + self.rate * (now - self.at) / 1000)
        assert self.lowest > -0.02, f"{-self.lowest} too many were allowed"
        assert tokens < level + 0.02, f"{tokens} tokens are out, and {level} may be"
        rate = sum(each.fill / each.interval for each in live)
        assert rate < self.rate * 1.000001, f"Envoys refill at {rate}"
        assert sum(each.most or 0 for each in live) <= self.burst
