"""The quota service with real rules and Envoys as they are, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from envoy.service.rate_limit_quota.v3 import rlqs_pb2

from penstock.errors import StoreUnavailable
from penstock.limits import Limit
from penstock.service.grpc_status import UNAVAILABLE
from penstock.service.rlqs import shares, streams
from penstock.service.rlqs.account import LEAVE, Request
from penstock.service.rlqs.bank import Entry, MemoryBank
from penstock.service.rlqs.service import AGE, STALLED, RlqsService
from penstock.service.rlqs.streams import IDLE, node_name
from service.rlqs.envoys import Envelope, Envoy, World

RULES = """
domain: envoys
deny: {user: [mallory]}
allow: {user: [root]}
descriptors:
- key: user
  limits: 100/second
- key: user
  value: shadow
  shadow_mode: true
  limits: 1/second
- key: user
  value: free
  rate_limit: {unlimited: true}
- key: user
  value: window
  limits: 10/second fixed_window
- key: user
  value: several
  limits: [100/second burst 200, 1000/minute burst 500]
- key: path
  value: /files/*
  share_threshold: true
  limits: 10/second
- key: plan
  descriptors:
  - key: user
    limits: 20/second
"""


def assigned(envoy: Envoy, **pairs: str) -> Any:
    """What Envoy has for a bucket after its first request."""
    bucket = tuple(sorted(pairs.items()))
    envoy.request(bucket)
    envoy.world.run_until(envoy.world.now + 100)
    return envoy.buckets[bucket].assigned


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ({"user": "a"}, (100, 10_000, 100)),
        ({"user": "several"}, (200, 16_666, 1_000)),
        ({"user": "a", "plan": "gold"}, (20, 20_000, 1_000)),
        ({"user": "shadow"}, "ALLOW"),
        ({"user": "free"}, "ALLOW"),
        ({"user": "root"}, "ALLOW"),
        ({"colour": "red"}, "ALLOW"),
        ({"user": "mallory"}, "DENY"),
        ({"user": "window"}, None),
    ],
)
def test_what_a_bucket_gets(pairs: dict[str, str], expected: Any) -> None:
    world = World(RULES)
    has = assigned(world.envoy("a"), **pairs)
    if expected is None:
        assert has is None
    elif expected == "ALLOW":
        assert has.most is None
    elif expected == "DENY":
        assert has.most == 0
    else:
        assert (has.most, has.fill, has.interval) == expected


def test_a_limit_that_cannot_be_divided_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(RULES)
    envoy = world.envoy("a")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assigned(envoy, user="window")
            world.run_until(world.now + 6_000)
    (record,) = caplog.records
    assert "envoys/user=window" in record.getMessage()
    assert "fixed_window" in record.getMessage()


def test_buckets_that_share_a_limit_share_its_account() -> None:
    world = World(RULES)
    envoy = world.envoy("a")
    assigned(envoy, path="/files/a")
    assigned(envoy, path="/files/b")
    world.run_until(world.now + 20_000)
    parts = [bucket.assigned for bucket in envoy.buckets.values()]
    assert sum(part.fill for part in parts if part is not None) <= 10_000
    assert all(part is not None and part.fill > 3_000 for part in parts)


def test_an_unknown_domain_is_allowed() -> None:
    world = World(RULES.replace("domain: envoys", "domain: others"))
    assert assigned(world.envoy("a"), user="a").most is None


def test_rules_that_change_reach_envoys_at_once() -> None:
    world = World(RULES)
    envoy = world.envoy("a")
    assigned(envoy, user="a")
    world.run_until(world.now + 1_000)
    for limit, expected in (("50/second", (50, 50_000)), ("200/second", (50, 20_000))):
        world.gate.replace(RULES.replace("  limits: 100/second", f"  limits: {limit}"))
        world.run_until(world.now + 300)
        has = envoy.buckets[("user", "a"),].assigned
        assert has is not None
        assert (has.most, has.fill) == pytest.approx(expected, rel=0.11)


def test_a_rule_in_shadow_mode_allows_and_comes_back_with_a_full_bucket_that_is_paid() -> None:
    world = World(RULES)
    envoy = world.envoy("a")
    assigned(envoy, user="a")
    world.gate.switches.mode("shadow", "envoys/user")
    world.run_until(world.now + 6_000)
    has = envoy.buckets[("user", "a"),].assigned
    assert has is not None
    assert has.most is None
    world.gate.switches.clear_mode("envoys/user")
    world.run_until(world.now + 6_000)
    has = envoy.buckets[("user", "a"),].assigned
    assert has is not None
    assert has.fill == 10_000


def test_an_override_is_divided() -> None:
    world = World(RULES)
    world.gate.switches.override("user", "a", factor=3)
    has = assigned(world.envoy("a"), user="a")
    assert (has.most, has.fill) == (300, 29_999)


def test_a_bucket_without_requests_is_abandoned() -> None:
    world = World(RULES)
    envoy = world.envoy("a")
    assigned(envoy, user="a")
    world.run_until(world.now + IDLE - 1_000)
    assert envoy.buckets
    world.run_until(world.now + 8_000)
    assert not envoy.buckets
    (service,) = world.services
    assert service is not None
    assert service.stats.abandoned == 1
    assert assigned(envoy, user="a").fill == 10_000  # proven, so it is free again at once


def test_streams_end_at_some_age_and_envoys_come_back() -> None:
    world = World(RULES)
    envoy = world.envoy("a")
    assigned(envoy, user="a")
    first = envoy.link
    end = world.now + AGE * 5 // 4 + 20_000
    while world.now < end:
        envoy.request()
        world.run_until(world.now + 60_000)
    assert envoy.link is not None
    assert envoy.link is not first


class Wire:
    """A wire of which nothing is ever confirmed."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.status: tuple[int, str] | None = None

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    def close(self, status: int = 0, reason: str = "") -> None:
        self.status = status, reason

    def confirm(self, delivered: Any) -> bool:
        return True


def report(domain: str, *users: str) -> bytes:
    reports = rlqs_pb2.RateLimitQuotaUsageReports(domain=domain)
    for user in users:
        usage = reports.bucket_quota_usages.add(num_requests_allowed=1)
        usage.bucket_id.bucket["user"] = user
    return reports.SerializeToString()


def test_a_stream_on_which_nothing_arrives_is_closed() -> None:
    world = World(RULES)
    (service,) = world.services
    assert service is not None
    wire = Wire()
    stream = service.open(wire, {}, "peer")
    stream.receive(report("envoys", "a"))
    world.run_until(world.now + STALLED)
    assert wire.status is None
    world.run_until(world.now + 2_000)
    assert wire.status is not None
    assert wire.status[0] == UNAVAILABLE


def test_a_flood_is_answered_at_a_pace_and_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "MOST_BUCKETS", 50)
    world = World(RULES)
    (service,) = world.services
    assert service is not None
    wire = Wire()
    stream = service.open(wire, {}, "peer")
    for number in range(5_000):
        stream.receive(report("envoys", f"user-{number % 70}"))
        if number % 100 == 0:
            world.settle()
    world.run_until(world.now + 1_000)
    assert len(stream.buckets) == 50
    assert service.stats.ignored > 1_000
    assert len(service._timers) <= 60
    actions = sum(
        len(rlqs_pb2.RateLimitQuotaResponse.FromString(each).bucket_action) for each in wire.sent
    )
    assert actions <= 50 * 12
    stream.closed()
    assert service._buckets == 0
    assert not service._ready


@pytest.mark.parametrize("message", [b"\xff", report("", "a")])
def test_a_malformed_report_ends_the_stream(message: bytes) -> None:
    world = World(RULES)
    (service,) = world.services
    assert service is not None
    with pytest.raises(ValueError, match="RateLimitQuotaUsageReports"):
        service.open(Wire(), {}, "peer").receive(message)


class Away:
    async def exchange(self, entries: Any) -> Any:
        raise StoreUnavailable("no connection")


def test_while_the_bank_is_away_envoys_keep_what_they_have(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(RULES)
    envoy = world.envoy("a")
    assigned(envoy, user="a")
    (service,) = world.services
    assert service is not None
    there, world.bank = world.bank, Away()  # type: ignore[assignment]  # only this is called
    for _ in range(14):
        envoy.request()
        world.run_until(world.now + 1_000)
    assert service.degraded
    assert envoy.buckets[("user", "a"),].assigned is not None
    world.run_until(world.now + 3_000)
    assert envoy.buckets[("user", "a"),].live(world.now) is None  # its own behaviour decides
    world.bank = there
    world.run_until(world.now + 3_000)
    assert not service.degraded
    assert envoy.buckets[("user", "a"),].assigned is not None
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


@pytest.mark.parametrize("seed", range(8))
def test_two_envoys_with_one_name_get_shares_of_their_own(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(RULES, seed=seed)
    envelope = Envelope(100, 100, world.now)
    world.delivered = lambda: envelope.check(world.envoys, world.now)
    envoys = [world.envoy("same")]
    for step in range(500):
        if step == 20 + 12 * seed:  # anywhere between two reports of the first
            envoys.append(world.envoy("same"))
        if step == 250:
            assert envoys[0].link is not None
            envoys[0].link.over()  # and comes back
        for envoy in envoys:
            for _ in range(10):
                if envoy.request():
                    envelope.admit(world.now)
        world.run_until(world.now + 100)
    rates = [envoy.buckets[("user", "a"),].assigned for envoy in envoys]
    assert sum(rate.fill for rate in rates if rate is not None) <= 10_000
    assert min(rate.fill for rate in rates if rate is not None) > 3_000
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "'same'" in caplog.text


class NeverCancelled(MemoryBank):
    """A client that takes a cancellation for a failure."""

    async def exchange(self, entries: Any) -> Any:
        try:
            await asyncio.Event().wait()  # for ever
        except asyncio.CancelledError:
            raise StoreUnavailable("lost") from None


async def test_it_closes_even_if_a_cancellation_gets_lost() -> None:
    world = World(RULES)
    service = RlqsService(world.gate, NeverCancelled())
    service.start()
    request = Request(LEAVE, "a", "stream")
    service.notify(Entry("envoys|user=a", shares.terms_of([Limit.parse("1/second")]), request))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await service.close()


def test_an_envoy_that_cannot_prove_anything_begins_with_half() -> None:
    world = World(RULES, can_prove=False)
    assert assigned(world.envoy("a"), user="a").fill == 5_000
    assert assigned(world.envoy("b"), user="a").fill > 2_000


def test_names_of_buckets_are_bounded() -> None:
    world = World(RULES)
    envoy = world.envoy("a")
    for number in range(5):
        envoy.request((("user", f"{number}" + "x" * 2**20),))
    world.run_until(world.now + 100)
    (service,) = world.services
    assert service is not None
    assert service.stats.ignored == 2
    assert envoy.link is not None
    envoy.link.over()
    world.run_until(world.now + 10_000)  # it comes back, and has as much room as before
    assert len(envoy.link.stream.buckets) == 3


@pytest.mark.parametrize(
    ("metadata", "peer", "name"),
    [
        ({"x-node-id": "envoy-1"}, "10.0.0.1:5", "envoy-1"),
        ({}, "10.0.0.1:5", "10.0.0.1:5"),
        ({"x-node-id": ""}, "10.0.0.1:5", "10.0.0.1:5"),
    ],
)
def test_names(metadata: dict[str, str], peer: str, name: str) -> None:
    assert node_name(metadata, peer) == name


@pytest.mark.parametrize("name", ["x" * 200, "a\0b", "a\nb"])
def test_names_that_cannot_be_kept_are_hashed(name: str) -> None:
    assert len(node_name({"x-node-id": name}, "")) == 32
