"""What was used of a limit follows it through any chain of reloads."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")

from penstock import AsyncGate, Descriptor, Gate, MemoryStore, SharedMemoryStore
from penstock import base_gate as gate_module
from penstock.rules.deciding import lineage
from penstock.rules.deciding.lineage import Lineage
from penstock.stores.base import Counters
from penstock.testing import FakeClock

START = 1_700_000_000 * 10**9
HOUR = 3600


def rules(*limits: str, more: str = "") -> str:
    """One rule for users, with these limits."""
    joined = ", ".join(limits)
    return f"domain: api\ndescriptors:\n- {{key: user, limits: [{joined}]{more}}}"


def plans(**tiers: str) -> str:
    joined = ", ".join(f"{tier}: {limits}" for tier, limits in tiers.items())
    return (
        "domain: api\ndescriptors:\n- key: plan\n  descriptors:\n"
        f"  - {{key: user, plans: {{by: plan, tiers: {{{joined}}}, default: free}}}}"
    )


@pytest.fixture(params=["memory", "shared"])
def clock_and_gate(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    clock = FakeClock(START)
    if request.param == "memory":
        store: Any = MemoryStore(clock=clock)
    else:
        store = SharedMemoryStore(tmp_path / "file", clock=clock)

    def make(text: str) -> Gate:
        return Gate.from_rules(text, store, clock=clock)

    yield clock, make
    store.close()


def use(gate: Gate, count: int, **pairs: str) -> int:
    """How many of so many requests pass."""
    return sum(bool(gate.check(pairs or {"user": "1"})) for _ in range(count))


def left(gate: Gate, **pairs: str) -> int:
    decision = gate.check(Descriptor.of(pairs or {"user": "1"}, hits=0)).statuses[0].decision
    assert decision is not None
    return decision.remaining


def test_two_reloads_before_a_key_asks_forget_nothing(clock_and_gate: Any) -> None:
    _, make = clock_and_gate
    gate = make(rules("10/hour"))
    assert use(gate, 11) == 10
    gate.replace(rules("20/hour"))
    gate.replace(rules("30/hour"))
    assert left(gate) == 0
    assert left(gate, user="2") == 30


def test_a_limit_that_comes_back_knows_what_was_used_meanwhile(clock_and_gate: Any) -> None:
    _, make = clock_and_gate
    gate = make(rules("10/hour"))
    assert use(gate, 2) == 2
    gate.replace(rules("20/hour"))
    assert use(gate, 8) == 8
    gate.replace(rules("10/hour"))
    assert left(gate) == 4, "2 of 10, and then 8 of 20"
    gate.replace(rules("20/hour"))
    assert left(gate) == 8


@pytest.mark.parametrize("changed", [False, True])
def test_limits_that_change_places_keep_their_own(clock_and_gate: Any, changed: bool) -> None:
    _, make = clock_and_gate
    gate = make(rules("10/minute", "100/hour"))
    assert use(gate, 10) == 10
    gate.replace(rules("100/hour", "20/minute" if changed else "10/minute"))
    verdict = gate.check(Descriptor.of({"user": "1"}, hits=0))
    assert verdict.decision.remaining == 0
    gate.switches.mode("off", verdict.statuses[0].limit_name)
    assert left(gate) == 90, "a tenth of it, and not all"


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (["{limit: 10/hour, name: a}"], ["{limit: 20/hour, name: b}"], 10),
        (["{limit: 10/hour, name: a}"], ["20/hour"], 10),
        (["10/hour"], ["{limit: 20/hour, name: a}"], 10),
        (["10/hour"], ["1000/second", "20/hour"], 10),
        (["1000/second", "10/hour"], ["20/hour"], 10),
        (["10/hour"], ["10/hour on_failure closed"], 5),
        (["10/hour"], ["30/hour fixed_window"], 15),
        (["10/hour"], ["7/day"], 3),  # rounded up: 4 of 7
    ],
)
def test_a_limit_is_known_by_name_period_or_place(
    clock_and_gate: Any, before: list[str], after: list[str], kept: int
) -> None:
    _, make = clock_and_gate
    gate = make(rules(*before))
    assert use(gate, 5) == 5
    gate.replace(rules(*after))
    assert left(gate) == kept


def test_names_tell_limits_of_one_period_apart(clock_and_gate: Any) -> None:
    _, make = clock_and_gate
    gate = make(rules("{limit: 10/hour, name: a}", "{limit: 100/hour, name: b}"))
    assert use(gate, 10) == 10
    gate.replace(rules("{limit: 200/hour, name: b}", "{limit: 20/hour, name: a}"))
    assert left(gate) == 0
    gate.switches.mode("off", "a")
    assert left(gate) == 180


def test_time_goes_by_as_the_limits_say(clock_and_gate: Any) -> None:
    clock, make = clock_and_gate
    gate = make(rules("10/hour"))
    assert use(gate, 10) == 10
    gate.replace(rules("20/hour"))
    clock.advance(HOUR // 2)
    gate.replace(rules("30/hour"))
    assert left(gate) == 15, "half of it has come back"
    clock.advance(2 * HOUR)
    gate.replace(rules("40/hour"))
    assert left(gate) == 40


def test_what_is_brought_over_is_brought_over_once(clock_and_gate: Any) -> None:
    clock, make = clock_and_gate
    gate = make(rules("10/day"))
    assert use(gate, 10) == 10
    gate.replace(rules("10/minute"))
    assert left(gate) == 0
    clock.advance(60)
    assert left(gate) == 10, "a minute's limit is free after a minute, whatever the day's says"
    gate.replace(rules("20/minute"))
    assert left(gate) == 20


def test_plans_take_over_each_from_its_own(clock_and_gate: Any) -> None:
    _, make = clock_and_gate
    gate = make(plans(free="10/hour", gold="100/hour"))
    assert use(gate, 5, plan="free", user="1") == 5
    assert use(gate, 10, plan="gold", user="1") == 10
    gate.replace(plans(gold="200/hour", free="20/hour"))
    assert left(gate, plan="free", user="1") == 10
    assert left(gate, plan="gold", user="1") == 180
    gate.replace(plans(free="40/hour"))
    assert left(gate, plan="gold", user="1") == 36, "it has the default's limit now"
    gate.replace(plans(free="40/hour", gold="400/hour"))
    assert left(gate, plan="gold", user="1") == 360


def test_a_tier_of_plans_may_share_names_with_another(clock_and_gate: Any) -> None:
    _, make = clock_and_gate
    one, two = "[{limit: 10/hour, name: a}]", "[{limit: 100/hour, name: a}]"
    gate = make(plans(free=one, gold=two))
    assert use(gate, 5, plan="free", user="1") == 5
    gate.replace(plans(free=one.replace("10/", "20/"), gold=two))
    assert left(gate, plan="free", user="1") == 10


def test_a_split_and_a_schedule_take_over(clock_and_gate: Any) -> None:
    _, make = clock_and_gate
    gate = make(rules("10/hour"))
    assert use(gate, 5) == 5
    gate.replace(rules("10/hour", more=", split: {percent: 100, limits: 20/hour}"))
    assert left(gate) == 10
    assert use(gate, 5) == 5
    gate.replace(rules("40/hour"))
    assert left(gate) == 10, "15 of 20, though the rule itself was never asked"


def test_overrides_follow_their_limits(clock_and_gate: Any) -> None:
    _, make = clock_and_gate
    gate = make(rules("10/hour"))
    gate.switches.override("user", "1", factor=10)
    gate.switches.override("user", "2", limit="10/day")
    assert use(gate, 50) == 50
    assert use(gate, 5, user="2") == 5
    gate.replace(rules("20/hour"))
    gate.replace(rules("30/hour"))
    assert left(gate) == 150
    assert left(gate, user="2") == 5


def test_rules_in_shadow_inherit(clock_and_gate: Any) -> None:
    _, make = clock_and_gate
    gate = make(rules("10/hour", more=", shadow_mode: true"))
    assert use(gate, 12) == 12
    gate.replace(rules("20/hour", more=", shadow_mode: true"))
    gate.replace(rules("30/hour"))
    assert use(gate, 1) == 0


def test_clients_that_are_locked_out_stay_locked_out(clock_and_gate: Any) -> None:
    clock, make = clock_and_gate
    gate = make(rules("5/minute lockout 15m"))
    assert use(gate, 6) == 5
    gate.replace(rules("6/minute lockout 15m soft 2 for 1m"))
    gate.replace(rules("7/minute lockout 15m soft 2 for 1m"))
    assert not gate.check(Descriptor.of({"user": "1"}, hits=0)), "a look finds it locked, too"
    clock.advance(14 * 60)
    assert use(gate, 1) == 0
    clock.advance(60)
    assert use(gate, 1) == 1


def test_a_look_locks_nobody_out(clock_and_gate: Any) -> None:
    clock, make = clock_and_gate
    gate = make(rules("5/minute lockout 15m"))
    assert use(gate, 5) == 5
    gate.replace(rules("6/minute lockout 15m"))
    gate.check(Descriptor.of({"user": "1"}, hits=0))
    clock.advance(60)
    assert use(gate, 1) == 1


def test_a_debt_is_brought_over(clock_and_gate: Any) -> None:
    clock, make = clock_and_gate
    gate = make(rules("10/hour debt 10"))
    assert gate.check({"user": "1"}, hits=20)
    gate.replace(rules("20/hour debt 20"))
    assert left(gate) == 0
    clock.advance(HOUR // 2)
    assert use(gate, 1) == 0, "half of the debt is still open"


def test_a_limit_that_warms_up_is_not_taken_for_used(clock_and_gate: Any) -> None:
    _, make = clock_and_gate
    gate = make(rules("30/hour warm_up 10m"))
    gate.replace(rules("60/hour"))
    assert left(gate) == 60


def test_what_was_given_back_is_not_taken_again(clock_and_gate: Any) -> None:
    _, make = clock_and_gate
    gate = make(rules("10/hour"))
    assert use(gate, 10) == 10
    gate.replace(rules("20/hour"))
    gate.check({"user": "1"}, hits=-20)
    assert left(gate) == 20
    gate.replace(rules("30/hour"))
    assert left(gate) == 30
    gate.replace(rules("10/hour"))
    assert left(gate) == 10


def test_grouping_addresses_does_not_end_it(clock_and_gate: Any) -> None:
    _, make = clock_and_gate
    text = rules("10/hour") + "\n- {key: ip, limits: 5/hour}"
    gate = make(text)
    assert use(gate, 10) == 10
    gate.replace(text.replace("10/hour", "20/hour"))
    gate.group("ip", ipv6=56)
    assert left(gate) == 0


def test_a_process_that_starts_later_is_told_the_lineage() -> None:
    clock = FakeClock(START)
    store = MemoryStore(clock=clock)
    old = Gate.from_rules(rules("10/hour"), store, clock=clock)
    assert use(old, 10) == 10
    old.replace(rules("20/hour"))
    old.replace(rules("30/hour"))
    history = old.compiled.lineage
    new = Gate(old.rules, store, clock=clock, lineage=history)
    assert left(new) == 0
    assert left(Gate(old.rules, MemoryStore(clock=clock), clock=clock, lineage=history)) == 30


def test_two_processes_take_over_once() -> None:
    clock = FakeClock(START)
    store = MemoryStore(clock=clock)
    gates = [Gate.from_rules(rules("10/hour"), store, clock=clock) for _ in range(2)]
    assert use(gates[0], 5) == 5
    for gate in gates:
        gate.replace(rules("20/hour"))
    assert [left(gate) for gate in gates] == [10, 10]
    assert use(gates[0], 4) == 4
    assert left(gates[1]) == 6


# Bounds ------------------------------------------------------------------------------------


def test_a_thousand_reloads_keep_few_generations() -> None:
    clock = FakeClock(START)
    store = MemoryStore(clock=clock)
    before = _generations()  # of other tests
    gate = Gate.from_rules(rules("10/hour"), store, clock=clock)
    assert use(gate, 10) == 10
    for number in range(1000):
        gate.replace(rules(f"{11 + number % 500}/hour", "5/second"))
        clock.advance(60)
    (found,) = gate.compiled.lineage.ancestors.values()
    assert len(found) == lineage.MOST_ANCESTORS
    assert _generations() - before < 20
    assert len(store._counters) <= 200, "a limit is forgotten when nothing of it matters"


def _generations() -> int:
    gc.collect()
    kinds = (Lineage, lineage.Heritage)  # no isinstance: it would wake what is lazy in Django
    return sum(1 for each in gc.get_objects() if type(each) in kinds)


def test_flipping_between_two_limits_keeps_two() -> None:
    clock = FakeClock(START)
    gate = Gate.from_rules(rules("7/hour"), MemoryStore(clock=clock), clock=clock)
    assert use(gate, 7) == 7
    for _ in range(500):
        gate.replace(rules("10/hour"))
        gate.replace(rules("20/hour"))
    (found,) = gate.compiled.lineage.ancestors.values()
    assert {str(each.limit) for each in found} == {"7/hour", "10/hour"}
    assert left(gate) == 0


def test_keys_that_asked_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "MOST_SEEN", 10)
    clock = FakeClock(START)
    gate = Gate.from_rules(rules("10/hour"), MemoryStore(clock=clock), clock=clock)
    for user in range(50):
        use(gate, 5, user=str(user))
    gate.replace(rules("20/hour"))
    for _ in range(2):
        for user in range(50):
            assert left(gate, user=str(user)) == 10
    assert len(gate.compiled.seen_keys) <= 10


def test_the_short_way_is_open_again_when_nothing_is_inherited_any_more() -> None:
    clock = FakeClock(START)
    gate = Gate.from_rules(rules("10/hour"), MemoryStore(clock=clock), clock=clock)
    assert gate.planner.plan(None, ({"user": "1"},)) is not None
    gate.replace(rules("20/hour"))
    assert gate.planner.plan(None, ({"user": "1"},)) is None
    clock.advance(2 * HOUR)
    assert use(gate, 1) == 1
    assert gate.planner.plan(None, ({"user": "1"},)) is not None
    assert len(gate.compiled.seen_keys) == 0


# Requests at the same moment -----------------------------------------------------------------


def test_a_failure_on_the_way_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(START)
    gate = Gate.from_rules(rules("10/hour"), MemoryStore(clock=clock), clock=clock)
    assert use(gate, 10) == 10
    gate.replace(rules("20/hour"))
    do, failed = gate_module.do_work, []

    def fail_once(store: Any, work: Any, taken: Any) -> Any:
        if any(verb == "charge" for verb, _, _ in work.calls) and not failed:
            failed.append(work)
            raise OSError("gone")
        return do(store, work, taken)

    monkeypatch.setattr(gate_module, "do_work", fail_once)
    with pytest.raises(OSError, match="gone"):
        gate.check({"user": "1"})
    assert failed
    assert left(gate) == 0


def test_threads_that_come_together_find_it_brought_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock(START)
    gate = Gate.from_rules(rules("10/hour"), MemoryStore(clock=clock), clock=clock)
    use(gate, 10)
    gate.replace(rules("20/hour"))
    looked, go_on = threading.Event(), threading.Event()
    do = gate_module.do_work

    def slowly(store: Any, work: Any, taken: Any) -> Any:
        if any(verb == "charge" for verb, _, _ in work.calls):
            looked.set()
            assert go_on.wait(60)
        return do(store, work, taken)

    monkeypatch.setattr(gate_module, "do_work", slowly)
    passed: list[bool] = []
    threads = [
        threading.Thread(target=lambda: passed.append(bool(gate.check({"user": "1"}))))
        for _ in range(8)
    ]
    threads[0].start()
    assert looked.wait(60)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert passed == [False] * 8


class Slow(MemoryStore):
    """Its answers come a turn of the loop later, as those of a server do."""

    waits = True

    def make_counters(self, limit: Any) -> Counters:
        inner = super().make_counters(limit)

        class Waiting(Counters):
            def submit(self, verb: str, *args: Any) -> Any:
                async def later() -> Any:
                    await asyncio.sleep(0)
                    return getattr(inner, verb)(*args)

                return later()

        return Waiting(limit, inner.clock)


def test_tasks_that_come_together_find_it_brought_over() -> None:
    async def main() -> list[bool]:
        clock = FakeClock(START)
        gate = AsyncGate.from_rules(rules("10/hour"), Slow(clock=clock), clock=clock)
        for _ in range(5):
            await gate.check({"user": "1"})  # type: ignore[misc]
        gate.replace(rules("20/hour"))
        asking = [gate.check({"user": "1"}) for _ in range(30)]
        cancelled = asyncio.ensure_future(asking.pop())  # type: ignore[arg-type]
        checks = asyncio.gather(*asking)  # type: ignore[call-overload]
        await asyncio.sleep(0)
        cancelled.cancel()
        return [bool(verdict) for verdict in await checks]

    assert sum(asyncio.run(main())) == 10
