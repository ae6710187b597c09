"""Rules with ``concurrency``: slots instead of hits, with a lease."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import AsyncGate, Gate, MemoryStore
from penstock.events import Event, SlotRefused, SlotReleased, SlotTaken
from penstock.rules.deciding.verdict import Descriptor, Verdict
from penstock.testing import FakeClock
from service.service_kit import Slow

USER, IP = {"user": "42"}, {"ip": "a"}


def rules(concurrency: int | None = 2, **more: Any) -> dict[str, Any]:
    step = {"key": "user", "concurrency": concurrency, **more}
    return {"domain": "api", "descriptors": [step, {"key": "ip", "limits": "3/hour"}]}


def gate_with(clock: FakeClock, **options: Any) -> Gate:
    return Gate.from_rules(rules(**options), MemoryStore(clock=clock), clock=clock)


def held(gate: Gate) -> int:
    """How many slots are in use, by what is left of a limit that is not full."""
    decision = gate.check(Descriptor.of(USER, hits=0)).statuses[0].decision
    assert decision is not None
    return decision.limit.amount - decision.remaining


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_so_many_at_once_and_a_release_makes_room(clock: FakeClock) -> None:
    gate = gate_with(clock)
    first, second, third = [gate.check(USER) for _ in range(3)]
    assert [bool(first), bool(second), bool(third)] == [True, True, False]
    assert not third.slots
    clock.advance(10)
    gate.release(first)
    assert gate.check(USER)
    assert not gate.check(USER)


def test_a_second_release_frees_nothing(clock: FakeClock) -> None:
    gate = gate_with(clock)
    first, _ = gate.check(USER), gate.check(USER)  # at one instant: they share a row of the log
    gate.release(first)
    gate.release(first)
    assert held(gate) == 1


@pytest.mark.parametrize(("lease", "seconds"), [(None, 30), ("5m", 300), ("250ms", 0.25)])
def test_a_dead_caller_blocks_nobody_for_longer_than_the_lease(
    clock: FakeClock, lease: str | None, seconds: float
) -> None:
    gate = gate_with(clock, **({} if lease is None else {"slot_lease": lease}))
    assert all(gate.check(USER) for _ in range(2))
    refused = gate.check(USER)
    assert refused.retry_after == seconds
    clock.advance(seconds - 0.001)
    assert not gate.check(USER)
    clock.advance(0.001)
    assert gate.check(USER)


def test_a_late_release_does_not_free_the_slot_of_another(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=1)
    late = gate.check(USER)
    clock.advance(30)
    assert gate.check(USER)
    gate.release(late)
    assert not gate.check(USER)


def test_refused_by_rate_takes_no_slot(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=5, limits="1/hour")
    assert gate.check(USER)
    assert not gate.check(USER)
    assert held(gate) == 1


def test_refused_by_concurrency_takes_no_token(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=1, limits="3/hour")
    first = gate.check(USER)
    assert not any(gate.check(USER) for _ in range(5))
    gate.release(first)
    second = gate.check(USER)
    gate.release(second)
    assert gate.check(USER), "of three tokens, two were used"


def test_of_several_descriptors_all_or_none(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=2)
    for _ in range(2):
        assert gate.check(USER, IP)
    assert not gate.check(USER, IP)  # no slot: no token of the address
    assert gate.check({"user": "other"}, IP)
    assert not gate.check({"user": "third"}, IP)  # no token: no slot
    assert gate.check({"user": "third"}).statuses[0].decision.remaining == 1  # type: ignore[union-attr]


def test_one_descriptor_twice_holds_two_slots(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=3)
    both = gate.check(USER, USER)
    assert held(gate) == 2
    assert not gate.check(USER, USER)
    gate.release(both)
    assert held(gate) == 0


@pytest.mark.parametrize(("hits", "slots"), [(1, 1), (7, 1), (0, 0), (-1, 0)])
def test_a_request_holds_one_slot_however_many_hits_it_has(
    clock: FakeClock, hits: int, slots: int
) -> None:
    gate = gate_with(clock, concurrency=2, limits="100/hour")
    gate.check(USER)
    assert len(gate.check(Descriptor.of(USER, hits=hits)).slots) == slots
    assert held(gate) == 1 + slots


def test_a_rate_of_the_same_numbers_is_counted_apart(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=2, limits="2/30s sliding_log")
    first, second = gate.check(USER), gate.check(USER)
    assert first
    assert second
    gate.release(first)
    gate.release(second)
    assert not gate.check(USER), "slots are free, but the rate is used up"


def test_only_a_rule_that_is_unlimited_in_rate(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=1, rate_limit={"unlimited": True})
    assert gate.check(USER)
    assert not gate.check(USER)


def test_in_shadow_mode_nobody_is_refused_and_refused_requests_hold_nothing(
    clock: FakeClock,
) -> None:
    gate = gate_with(clock, concurrency=1, shadow_mode=True)
    first, second = gate.check(USER), gate.check(USER)
    assert first
    assert second
    assert (len(first.slots), len(second.slots)) == (1, 0)
    gate.release(first)
    for _ in range(3):
        gate.check(IP)
    assert not gate.check(USER, IP)
    assert held(gate) == 0


def test_switches_and_overrides(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=1, limits="1/hour")
    assert gate.check(USER)
    gate.switches.override("user", "42", factor=5)
    assert not gate.check(USER), "an override changes rates"
    gate.switches.mode("off", "api/user concurrency")
    assert gate.check(USER)


# Reloads --------------------------------------------------------------------------------------


def test_fewer_slots_while_leases_are_out(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=10)
    running = [gate.check(USER) for _ in range(8)]
    gate.replace(rules(5))
    clock.advance(1)
    refused = gate.check(USER)
    assert not refused
    assert refused.retry_after == 29
    for verdict in running[:3]:
        gate.release(verdict)
    assert not gate.check(USER)
    gate.release(running[3])
    fifth = gate.check(USER)
    assert fifth, "four hold slots of the rule before, and one is free"
    assert fifth.decision is not None
    assert fifth.decision.remaining == 0
    assert not gate.check(USER)
    for verdict in [*running, fifth]:
        gate.release(verdict)
    assert [bool(gate.check(USER)) for _ in range(6)] == [True] * 5 + [False]


def test_more_slots_count_those_that_are_out(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=2)
    assert all(gate.check(USER) for _ in range(2))
    gate.replace(rules(3))
    assert [bool(gate.check(USER)) for _ in range(2)] == [True, False]


def test_there_and_back_again(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=4)
    running = [gate.check(USER) for _ in range(2)]
    gate.replace(rules(3))
    running.append(gate.check(USER))
    gate.replace(rules(4, slot_lease="1m"))
    running.append(gate.check(USER))
    assert all(running)
    assert not gate.check(USER)
    gate.replace(rules(4))
    assert not gate.check(USER)
    for number, verdict in enumerate(running):
        gate.release(verdict)
        assert [bool(gate.check(USER, hits=1)), number] == [True, number]


def test_leases_from_before_a_reload_expire(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=10)
    assert all(gate.check(USER) for _ in range(8))
    clock.advance(10)
    gate.replace(rules(5))
    clock.advance(19.999)
    assert not gate.check(USER)
    clock.advance(0.001)
    assert [bool(gate.check(USER)) for _ in range(6)] == [True] * 5 + [False]


def test_a_rule_that_goes_while_leases_are_out(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=1)
    lease = gate.check(USER)
    gate.replace(rules(None, limits="9/hour"))
    assert gate.check(USER)
    gate.release(lease)
    gate.replace(rules(1))
    assert gate.check(USER)
    assert not gate.check(USER)


def test_slots_are_not_carried_over_as_usage(clock: FakeClock) -> None:
    """Nor is the usage of a rate as slots: the one has become the other here."""
    gate = gate_with(clock, concurrency=None, limits="2/30s sliding_log")
    assert all(gate.check(USER) for _ in range(2))
    gate.replace(rules(2))
    running = [gate.check(USER) for _ in range(2)]
    assert all(running)
    gate.replace(rules(None, limits="3/30s sliding_log"))
    assert all(gate.check(USER) for _ in range(3))


@given(st.data())
def test_never_more_than_the_rule_in_force_allows(data: st.DataObject) -> None:
    """Against a model that knows when each lease ends, over any takes, releases and reloads."""
    clock = FakeClock()
    limit, lease = 3, 30
    gate = gate_with(clock, concurrency=limit)
    out: list[tuple[Verdict, float]] = []
    for _ in range(data.draw(st.integers(1, 25))):
        now = clock.now() / 1e9
        step = data.draw(st.sampled_from(["take", "take", "release", "wait", "reload"]))
        if step == "take":
            alive = sum(end > now for _, end in out)
            verdict = gate.check(USER)
            assert bool(verdict) == (alive < limit), f"{alive} of {limit} are held"
            if verdict:
                out.append((verdict, now + lease))
        elif step == "release" and out:
            verdict, _ = out.pop(data.draw(st.integers(0, len(out) - 1)))
            gate.release(verdict)
        elif step == "wait":
            clock.advance(data.draw(st.sampled_from([1, 10, 30])))
        elif step == "reload":
            limit = data.draw(st.integers(1, 5))
            lease = data.draw(st.sampled_from([10, 30]))
            gate.replace(rules(limit, slot_lease=f"{lease}s"))


# Interrupted, and clocks ----------------------------------------------------------------------


async def test_a_cancelled_check_holds_nothing(clock: FakeClock) -> None:
    store = Slow(clock=clock)
    gate = AsyncGate.from_rules(rules(1, limits="9/hour"), store, clock=clock)
    checking = asyncio.ensure_future(gate.check(USER))
    await asyncio.sleep(0)
    checking.cancel()
    await asyncio.gather(checking, return_exceptions=True)
    for _ in range(10):  # what was taken is given back behind our back
        await asyncio.sleep(0)
    first = await gate.check(USER)
    assert first
    assert not await gate.check(USER)


async def test_a_cancelled_release_is_done_all_the_same(clock: FakeClock) -> None:
    gate = AsyncGate.from_rules(rules(1), Slow(clock=clock), clock=clock)
    first = await gate.check(USER)
    releasing = asyncio.ensure_future(gate.release(first))
    await asyncio.sleep(0)
    releasing.cancel()
    await asyncio.gather(releasing, return_exceptions=True)
    for _ in range(10):
        await asyncio.sleep(0)
    assert await gate.check(USER)


def test_a_clock_that_steps_back_grants_nothing_and_blocks_for_one_lease(
    clock: FakeClock,
) -> None:
    gate = gate_with(clock, concurrency=1)
    first = gate.check(USER)
    clock.set(clock.now() - 3600 * 10**9)
    assert not gate.check(USER)
    gate.release(first)
    clock.advance(30)
    assert gate.check(USER)


def test_a_clock_that_steps_forwards_ends_leases(clock: FakeClock) -> None:
    gate = gate_with(clock, concurrency=1)
    first = gate.check(USER)
    clock.advance(3600)
    assert gate.check(USER)
    gate.release(first)
    assert not gate.check(USER)


def test_subscribers_are_told(clock: FakeClock) -> None:
    events: list[Event] = []
    gate = gate_with(clock, concurrency=1)
    gate.subscribe(events.append)
    first = gate.check(USER)
    gate.check(USER)
    gate.release(first)
    until = clock.now() + 30 * 10**9
    assert events == [
        SlotTaken("rules", "api/user", 1, until),
        SlotRefused("rules", "api/user"),
        SlotReleased("rules", "api/user", 1, until),
    ]
