"""The scenarios of the product: the files in examples/rules, on a clock that is told."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("yaml")

from penstock import Gate, MemoryStore
from penstock.testing import FakeClock

FOLDER = Path(__file__).parents[3] / "examples/rules"
SECOND = 10**9


def gate(name: str, now: str = "2026-11-16T00:00:00") -> tuple[Gate, FakeClock]:
    clock = FakeClock(int(datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp()) * SECOND)
    return Gate.from_file(FOLDER / name, store=MemoryStore(clock=clock), clock=clock), clock


def admitted(gate: Gate, tries: int, *descriptors: dict[str, str]) -> int:
    return sum(bool(gate.check(*descriptors)) for _ in range(tries))


def test_every_example_can_be_used() -> None:
    for path in FOLDER.glob("*.yaml"):
        Gate.from_file(path)


@pytest.mark.parametrize(
    ("plan", "most"), [("free", 100), ("paid", 1000), ("enterprise", 10_000), ("gold", 100)]
)
def test_three_tiers(plan: str, most: int) -> None:
    door, clock = gate("tiers.yaml")
    assert admitted(door, most + 50, {"plan": plan, "user": "42"}) == most
    assert admitted(door, 1, {"plan": plan, "user": "43"}) == 1
    clock.advance(3600)
    assert admitted(door, most + 50, {"plan": plan, "user": "42"}) == most


def test_log_ins_are_locked_out_after_five_a_minute() -> None:
    door, clock = gate("login.yaml")
    attempt = {"path": "/login", "ip": "203.0.113.9"}
    assert admitted(door, 5, attempt) == 5
    verdict = door.check(attempt)
    assert not verdict
    assert verdict.decision is not None
    assert verdict.decision.retry_after == 900
    clock.advance(899)
    assert not door.check({"path": "/login", "ip": "203.0.113.77"}), "a neighbour, one /24"
    clock.advance(1)
    assert door.check(attempt)
    for _ in range(200):  # patiently, below five a minute, and still only fifty a day
        clock.advance(60)
        verdict = door.check(attempt)
    assert not verdict
    assert verdict.statuses[0].limit_name == "slow-brute-force"


def test_a_thousand_writes_a_second() -> None:
    door, clock = gate("database-writes.yaml")
    assert admitted(door, 1500, {"operation": "write"}) == 1000
    assert admitted(door, 1500, {"operation": "read"}) == 1500
    clock.advance(0.5)
    assert admitted(door, 1500, {"operation": "write"}) == 500


def test_two_posts_a_second() -> None:
    door, clock = gate("posts.yaml")
    post = {"action": "post", "user": "42"}
    clock.advance(0.9)
    assert admitted(door, 3, post) == 2
    clock.advance(0.2)  # a new second by the clock, not for the user
    assert admitted(door, 3, post) == 0
    clock.advance(0.8)
    assert admitted(door, 3, post) == 2


def test_ten_accounts_a_day() -> None:
    door, clock = gate("sign-up.yaml")
    assert admitted(door, 15, {"action": "sign-up", "ip": "203.0.113.9"}) == 10
    assert admitted(door, 15, {"action": "sign-up", "ip": "203.0.113.10"}) == 10
    assert admitted(door, 99, {"action": "sign-up", "ip": "192.0.2.5"}) == 99, "the office"
    clock.advance(2 * 86_400)
    assert admitted(door, 15, {"action": "sign-up", "ip": "203.0.113.9"}) == 10


def test_five_rewards_a_week() -> None:
    door, clock = gate("rewards.yaml", "2026-11-15T15:59:00")  # a Sunday, 23:59 in Taipei
    claim = {"action": "claim", "device": "d1"}
    assert admitted(door, 9, claim) == 5
    clock.advance(60)
    assert admitted(door, 9, claim) == 5, "Monday there"
    clock.advance(6 * 86_400)
    assert admitted(door, 9, claim) == 0


def test_five_messages_a_day_where_the_phone_is() -> None:
    door, clock = gate("sms.yaml", "2026-11-16T15:59:59")
    for country in ("TW", "DE"):
        assert admitted(door, 9, {"country": country, "phone": "123"}) == 5
    clock.advance(1)  # midnight in Taipei, five in the afternoon in Berlin
    assert admitted(door, 9, {"country": "TW", "phone": "123"}) == 5
    assert admitted(door, 9, {"country": "DE", "phone": "123"}) == 0


def test_an_address_that_rotates_within_its_network() -> None:
    door, _ = gate("ipv6.yaml")
    tried = [f"2001:db8:7:1:{number:x}::{number:x}" for number in range(1, 60)]
    assert sum(bool(door.check({"ip": address})) for address in tried) == 20
    assert door.check({"ip": "2001:db8:7:2::1"}), "another /64"


def test_a_marketing_limit_in_the_words_of_envoy() -> None:
    door, clock = gate("marketing.yaml", "2026-11-16T23:59:00")
    both = ({"message_type": "marketing", "to_number": "555"}, {"to_number": "555"})
    assert admitted(door, 9, *both) == 5
    verdict = door.check(*both)
    assert [status.allowed for status in verdict.statuses] == [False, True]
    assert admitted(door, 200, {"to_number": "555"}) == 95, "refused ones took nothing"
    clock.advance(60)
    assert admitted(door, 9, *both) == 5, "windows from the epoch: a new day"


def test_a_shop_on_sale() -> None:
    door, clock = gate("sale.yaml", "2026-11-20T03:00:00")  # a Friday, 11:00 in Taipei
    users = [f"u{number}" for number in range(400)]
    most = [admitted(door, 200, {"user": user}) for user in users]
    assert set(most) == {100, 150}
    assert 20 <= most.count(150) <= 60, "about a tenth"
    clock.advance(7.5 * 3600)  # 18:30 on Friday
    other = next(user for user, amount in zip(users, most, strict=True) if amount == 100)
    assert admitted(door, 400, {"user": other}) == 300
    assert admitted(door, 999, {"user": "monitoring"}) == 999
    assert admitted(door, 999, {"user": "x"}, {"ip": "10.1.2.3"}) == 999
    assert all(door.check({"path": "/export/all"}) for _ in range(200)), "only in shadow"
    assert door.check({"path": "/export/all"}).statuses[0].decision.remaining == 0
