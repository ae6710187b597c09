"""Look first, debit after: what was used is booked, and ends what comes next."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("yaml")

from penstock import AsyncGate, Descriptor, Gate, MemoryStore
from penstock.testing import FakeClock

TOKENS = """
domain: api
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000, name: tokens}}
  - {key: org, rate_limit: {unit: hour, requests_per_unit: 1500}}
  - {key: own, limits: 1000/hour}
"""


def gate(text: str = TOKENS) -> tuple[Gate, FakeClock]:
    clock = FakeClock(1_700_000_000 * 10**9)
    return Gate.from_rules(text, MemoryStore(clock=clock), clock=clock), clock


def looks(door: Gate, *keys: str) -> bool:
    return bool(door.check(*[Descriptor.of({key: "1"}, hits=0) for key in keys]))


def used_up(door: Gate, tokens: int, *keys: str, rounds: int = 20) -> int:
    """Tokens that a caller gets through who looks first and debits after."""
    through = 0
    for _ in range(rounds):
        if looks(door, *keys):
            through += tokens
            door.check(*[{key: "1"} for key in keys], hits=tokens)
    return through


@pytest.mark.parametrize(
    ("tokens", "through"), [(400, 1200), (300, 1200), (999, 1998), (500, 1500), (5000, 5000)]
)
def test_a_caller_that_looks_first_is_stopped(tokens: int, through: int) -> None:
    door, clock = gate()
    assert used_up(door, tokens, "user") == through
    assert not door.check({"user": "1"})
    clock.advance(3600)
    assert looks(door, "user"), "what was overdrawn ends with its window"


def test_a_debit_reaches_all_descriptors_of_the_request() -> None:
    door, _ = gate()
    assert used_up(door, 400, "user", "org") == 1200
    assert looks(door, "org")
    assert used_up(door, 400, "org") == 400, "1,600 of 1,500"


def test_a_hit_is_no_debit() -> None:
    door, _ = gate("{domain: api, descriptors: [{key: user, rate_limit: {unit: hour,"
                   " requests_per_unit: 2}}]}")  # fmt: skip
    assert [bool(door.check({"user": "1"})) for _ in range(5)] == [True, True, False, False, False]
    door.check({"user": "1"}, hits=-1)
    assert [bool(door.check({"user": "1"})) for _ in range(2)] == [True, False]


def test_limits_in_penstocks_words_take_all_or_nothing() -> None:
    door, _ = gate()
    assert used_up(door, 400, "own") == 8000, "a refusal takes nothing, so a look is never over"
    assert door.check({"own": "1"}, hits=200)
    assert not door.check({"own": "1"})


def test_a_bucket_is_overdrawn_by_one_bucket_at_most_and_pays_it_back() -> None:
    door, clock = gate(TOKENS.replace("domain: api", "domain: api\ndefaults: "
                                      "{algorithm: token_bucket}"))  # fmt: skip
    assert used_up(door, 900, "user") == 1800
    assert not looks(door, "user")
    refused = door.check({"user": "1"}, hits=10**6)
    assert refused.retry_after is None
    clock.advance(3600)
    assert looks(door, "user"), "all of it is paid back in the time of one bucket"
    clock.advance(3600)
    assert door.check({"user": "1"}, hits=1000)


def test_a_refused_debit_says_when_the_same_would_fit() -> None:
    door, clock = gate(TOKENS.replace("domain: api", "domain: api\ndefaults: "
                                      "{algorithm: token_bucket}"))  # fmt: skip
    door.check({"user": "1"}, hits=900)
    refused = door.check({"user": "1"}, hits=500)
    assert not refused
    assert refused.retry_after is not None
    assert refused.decision is not None
    assert refused.decision.remaining == 0
    clock.advance(refused.retry_after - 0.001)
    assert door.check(Descriptor.of({"user": "1"}, hits=0)).decision.remaining == 499  # type: ignore[union-attr]
    clock.advance(0.001)
    assert door.check({"user": "1"}, hits=500)


@pytest.mark.parametrize("change", [{"factor": 2}, {"limit": "2000/hour"}])
def test_an_override_changes_how_much_and_not_what_a_debit_means(change: Any) -> None:
    door, _ = gate()
    door.switches.override("user", "1", **change)
    assert used_up(door, 900, "user") == 2700


def test_what_was_overdrawn_outlives_a_reload() -> None:
    door, _ = gate()
    assert used_up(door, 600, "user") == 1200
    door.replace(TOKENS.replace("1000, name", "2000, name"))
    assert not looks(door, "user"), "1,200 of 1,000 are 2,400 of 2,000"
    door.check({"user": "1"}, hits=-401)
    assert looks(door, "user")


def test_a_replaced_limit_is_not_debited() -> None:
    door, _ = gate(
        TOKENS
        + "  - {key: vip, rate_limit: {replaces: [{name: tokens}], unit: hour,"
        + " requests_per_unit: 5000}}\n"
    )
    assert used_up(door, 900, "user", "vip") == 5400
    assert used_up(door, 900, "user") == 1800


def test_rules_that_are_not_enforced_are_debited() -> None:
    door, _ = gate()
    door.switches.mode("shadow")
    assert used_up(door, 900, "user", rounds=3) == 2700
    door.switches.mode("enforce")
    assert not looks(door, "user")
    door.switches.mode("off", "api/user")
    assert looks(door, "user")


def test_every_debit_of_many_threads_is_booked_once() -> None:
    door, _ = gate()
    together = threading.Barrier(10)
    passed = []

    def call() -> None:
        together.wait()
        if looks(door, "user"):
            passed.append(1)
            together.wait()
            door.check({"user": "1"}, hits=300)

    threads = [threading.Thread(target=call) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(passed) == 10, "all looked before anybody had debited"
    assert not looks(door, "user")
    door.check({"user": "1"}, hits=-1999)
    assert not looks(door, "user"), "3,000 were booked"
    door.check({"user": "1"}, hits=-1)
    assert looks(door, "user")


async def test_the_same_for_coroutines() -> None:
    clock = FakeClock(1_700_000_000 * 10**9)
    door = AsyncGate.from_rules(TOKENS, MemoryStore(clock=clock), clock=clock)
    assert isinstance(door, AsyncGate)
    through = 0
    for _ in range(20):
        if await door.check(Descriptor.of({"user": "1"}, hits=0)):
            through += 400
            await door.check({"user": "1"}, hits=400)
    assert through == 1200
