"""The law of leases in virtual time: whatever fails, no more is admitted than the limit allows."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from penstock import Limit
from penstock.durations import MILLISECOND, SECOND
from penstock.stores.leased import law
from penstock.stores.leased.bank import Bank
from penstock.stores.leased.law import TAKEN, UNKNOWN
from penstock.stores.leased.messages import Message
from stores.leased.fleet import Fleet, Overrun

LIMITS = [
    "100/second", "1000/second burst 100", "20/second burst 16", "50/second burst 400",
    "200/second fixed_window", "40/100ms fixed_window", "60/second fixed_window align first_hit",
    "100/second leaky_bucket", "500/second burst 40 leaky_bucket",
]  # fmt: skip
picks = st.integers(0, 10**6)


class AnyFleet(RuleBasedStateMachine):
    """Messages are lost, repeated and overtake each other; instances crash; servers forget."""

    @initialize(limit=st.sampled_from(LIMITS), speeds=st.lists(st.integers(990, 1010), max_size=4))
    def start(self, limit: str, speeds: list[int]) -> None:
        self.fleet = Fleet(Limit.parse(limit))
        for number, speed in enumerate([1000, *speeds]):
            self.fleet.add(ahead=number * 10**12, speed=speed)

    def pick(self, number: int) -> Any:
        return self.fleet.instances[number % len(self.fleet.instances)]

    @rule(of_horizon=st.sampled_from([0.0, 0.01, 0.3, 0.9, 1.0, 2.0, 2.5, 8.0, 30.0]))
    def pass_time(self, of_horizon: float) -> None:
        self.fleet.pass_time(int(of_horizon * self.fleet.terms.horizon))

    @rule(number=picks, times=st.integers(1, 40), cost=st.sampled_from([1, 1, 1, 3]))
    def hit(self, number: int, times: int, cost: int) -> None:
        for _ in range(times):
            self.fleet.hit(self.pick(number), cost)

    @rule(number=picks, cost=st.sampled_from([1, 1, 3, 20]))
    def undo(self, number: int, cost: int) -> None:
        self.fleet.undo(self.pick(number), cost)

    @rule(number=picks, factor=st.sampled_from([1, 2, 16]), share=st.sampled_from([0.1, 0.5, 1.0]))
    def stretch(self, number: int, factor: int, share: float) -> None:
        self.fleet.stretch(self.pick(number), factor, share)

    @rule(times=st.integers(1, 60), cost=st.sampled_from([1, 1, 7]))
    def hit_directly(self, times: int, cost: int) -> None:
        for _ in range(times):
            self.fleet.hit_directly(cost)

    @rule(number=picks, want=st.sampled_from([None, None, 5, 50, 1000]))
    def trade(self, number: int, want: int | None) -> None:
        request = self.fleet.ask(self.pick(number), want)
        self.fleet.arrive(request)
        self.fleet.answer(request)

    @rule(number=picks, want=st.sampled_from([None, 0, 50]))
    def ask(self, number: int, want: int | None) -> None:
        self.fleet.ask(self.pick(number), want)

    @rule(number=picks)
    def give_up(self, number: int) -> None:
        self.pick(number).lease.give_up()
        self.fleet.ask(self.pick(number), 0)

    @precondition(lambda self: self.fleet.flying)
    @rule(number=picks)
    def arrive(self, number: int) -> None:
        self.fleet.arrive(self.fleet.flying[number % len(self.fleet.flying)])

    @precondition(lambda self: self.fleet.flying)
    @rule(number=picks)
    def answer(self, number: int) -> None:
        self.fleet.answer(self.fleet.flying[number % len(self.fleet.flying)])

    @rule(number=picks)
    def crash(self, number: int) -> None:
        self.fleet.crash(self.pick(number))

    @rule()
    def save(self) -> None:
        self.fleet.save()

    @rule()
    def fail_over(self) -> None:
        self.fleet.fail_over()


TestAnyFleet = AnyFleet.TestCase
TestAnyFleet.settings = settings(stateful_step_count=60, deadline=None)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("seed", range(4))
def test_never_above_the_limit_in_a_long_run_with_faults(limit: str, seed: int) -> None:
    chance, fleet = random.Random(seed), Fleet(Limit.parse(limit))
    for number in range(4):
        fleet.add(number * 10**13, chance.randint(992, 1008))
    undone = 0
    for _ in range(6_000):
        one = chance.choice(fleet.instances)
        what = chance.random()
        if what < 0.35:
            fleet.pass_time(chance.randint(0, fleet.terms.horizon // 2))
        elif what < 0.6:
            for _ in range(chance.randint(1, 30)):
                fleet.hit(one, 1)
            if chance.random() < 0.3:
                undone += fleet.undo(one, chance.choice([1, 1, 2, 5]))
        elif what < 0.65:
            for _ in range(chance.randint(1, 50)):
                fleet.hit_directly(1)
        elif what < 0.85:
            fleet.ask(one, chance.choice([None, None, 0, 40]))
        elif what < 0.87:
            one.lease.give_up()
        elif what < 0.88:
            fleet.crash(one)
        elif what < 0.89:
            fleet.pass_time(chance.randint(0, 20 * fleet.terms.horizon))
        elif what < 0.94:
            undone += fleet.undo(one, chance.choice([1, 1, 2, 5]))
        elif what < 0.96:
            fleet.stretch(one, chance.choice([1, 2, 16]), chance.choice([0.1, 0.5, 1.0]))
        for request in chance.sample(fleet.flying, min(2, len(fleet.flying))):
            fleet.arrive(request)
            if chance.random() < 0.8:
                fleet.answer(request)
        fleet.flying = fleet.flying[-6:]
    assert fleet.admitted > 200
    assert undone > 20


def overload(
    limit: str, shares: list[float], factor: float, seconds: float = 3.0
) -> tuple[float, list[float], float]:
    """Steady offers of ``factor`` times the rate, no faults, as the renewal does it.

    What was admitted after the first second, of what a central bucket would have; of each
    instance's offers; and the part of all decisions for which the bank was not asked.
    """
    parsed = Limit.parse(limit)
    fleet, chance = Fleet(parsed), random.Random(1)
    for _ in shares:
        fleet.add()
    rate = parsed.amount * SECOND / parsed.period_ns
    due = [0] * len(shares)
    offered, taken, decided, asked = [0] * len(shares), [0] * len(shares), 0, 0
    steady = -1
    start, step = fleet.now, MILLISECOND
    while fleet.now - start < seconds * SECOND:
        fleet.pass_time(step)
        if steady < 0 and fleet.now - start > SECOND:
            steady = fleet.admitted
        for at, one in enumerate(fleet.instances):
            lease = one.lease
            mean = rate * factor * shares[at] * step / SECOND
            for _ in range(int(mean + chance.random())):
                offered[at] += 1
                decided += 1
                outcome = fleet.hit(one, 1)
                if outcome == UNKNOWN:
                    asked += 1
                    outcome = TAKEN if fleet.hit_directly(1) else 0
                taken[at] += outcome == TAKEN
            here = one.now(fleet.now)
            if here >= due[at] or (lease.available <= lease.low and not lease.closed_until):
                request = fleet.ask(one)
                fleet.arrive(request)
                fleet.answer(request)
                asked += 1
                assert request.reply is not None
                due[at] = here + (request.reply.wait or request.reply.life // 2)
    # By then the burst is gone.
    ideal = min(factor, 1) * rate * (seconds - 1)
    ratios = [t / o for t, o in zip(taken, offered, strict=True) if o]
    return (fleet.admitted - steady) / ideal, ratios, 1 - asked / decided


@pytest.mark.parametrize("limit", ["1000/second", "10000/second", "1000/second burst 100"])
def test_under_overload_less_than_one_percent_is_unused(limit: str) -> None:
    used, _, local = overload(limit, [0.7, 0.2, 0.08, 0.02], 2.0, seconds=5)
    assert used > 0.99
    assert local > 0.9


def test_instances_are_admitted_in_proportion_to_their_demand() -> None:
    _, ratios, _ = overload("2000/second", [0.7, 0.2, 0.1], 2.0, seconds=5)
    assert max(ratios) - min(ratios) < 0.15


def test_below_the_limit_nothing_is_refused() -> None:
    _, ratios, _ = overload("1000/second", [0.25] * 4, 0.9)
    assert min(ratios) > 0.999


# What the pieces are for ------------------------------------------------------------------


def test_without_cover_a_full_bucket_and_a_lease_could_be_spent_together() -> None:
    fleet = Fleet(Limit.parse("100/second"))
    one = fleet.add()
    request = fleet.ask(one, 40)
    fleet.arrive(request)
    one.lease.receive(request.message, request.reply, request.sent)
    one.lease.deadline = 2**62  # an instance that does not heed its deadline
    fleet.pass_time(SECOND)
    for _ in range(100):
        fleet.hit_directly(1)
    with pytest.raises(Overrun):
        fleet.hit(one, 1)


def test_a_full_bucket_vouches_for_the_cover_and_an_empty_one_for_longer() -> None:
    fleet = Fleet(Limit.parse("100/second"))
    one, two = fleet.add(), fleet.add()
    request = fleet.ask(one, 10)
    fleet.arrive(request)
    assert request.reply is not None
    assert request.reply.life == fleet.terms.cover
    assert fleet.hit_directly(60)
    request = fleet.ask(two, 10)
    fleet.arrive(request)
    assert request.reply is not None
    assert request.reply.life > 3 * fleet.terms.cover


@pytest.mark.parametrize(("share", "most"), [(0.1, 40), (0.5, 200), (1.0, 393)])
def test_an_instance_holds_at_most_its_part_of_the_share(share: float, most: int) -> None:
    """Of a whole burst, too, the cover stays in the bank: here 7 units."""
    limit = Limit.parse("400/minute")
    terms = law.terms_of(limit, share=share)
    assert terms is not None
    bank, now = Bank(limit, terms), 1_700_000_000 * SECOND
    first = bank.call(Message(b"a", 0, 0, 0, demand=1000, want=10**6), now)
    assert first.granted == most
    second = bank.call(Message(b"b", 0, 0, 0, demand=1000, want=10**6), now)
    assert second.granted <= most // 2  # half of the demand


def test_units_that_are_returned_late_are_not_credited_beyond_full() -> None:
    fleet = Fleet(Limit.parse("100/second"))
    one = fleet.add()
    request = fleet.ask(one, 40)
    fleet.arrive(request)
    fleet.answer(request)
    fleet.pass_time(fleet.terms.cover * 3 // 4)
    one.lease.give_up()
    fleet.arrive(fleet.ask(one, 0))
    assert sum(fleet.hit_directly(1) for _ in range(200)) <= 100


def test_a_lease_ends_with_its_window() -> None:
    fleet = Fleet(Limit.parse("100/second fixed_window"))
    one = fleet.add()
    fleet.pass_time(900 * MILLISECOND)
    request = fleet.ask(one, 40)
    fleet.arrive(request)
    fleet.answer(request)
    assert request.reply is not None
    assert request.reply.life == 100 * MILLISECOND
    assert fleet.hit(one, 1) == TAKEN
    fleet.pass_time(100 * MILLISECOND)
    assert fleet.hit(one, 1) == UNKNOWN


def test_a_hit_of_the_last_window_is_not_put_back_into_this_one() -> None:
    """Its unit was booked there: here it would be one more than the amount."""
    fleet = Fleet(Limit.parse("100/second fixed_window"))
    one = fleet.add()
    fleet.pass_time(900 * MILLISECOND)
    first = fleet.ask(one, 10)
    fleet.arrive(first)
    fleet.answer(first)
    late = fleet.ask(one, 10)  # before the hits: they are not reported
    for _ in range(10):
        assert fleet.hit(one, 1) == TAKEN
    fleet.pass_time(150 * MILLISECOND)
    fleet.arrive(late)
    fleet.answer(late)
    assert one.lease.available == 10
    assert not fleet.undo(one, 1)
    assert fleet.hit(one, 1) == TAKEN
    assert fleet.undo(one, 1)


def test_a_bank_that_forgot_a_lease_believes_the_claim() -> None:
    terms = law.terms_of(Limit.parse("100/second"))
    assert terms is not None
    bank = Bank(Limit.parse("100/second"), terms)
    now = 1_700_000_000 * SECOND
    reply = bank.call(Message(b"a", granted=30, spent=10, returned=0, demand=100, want=0), now)
    assert reply.out == 20
    assert reply.room // bank.row.unit <= 80


@pytest.mark.parametrize(
    "text",
    [
        "10/second", "100/second debt 5", "100/second soft 5 for 1m", "100/second lockout 1m",
        "100/second warm_up 1m", "100/second initial 0", "0/second", "10/second leaky_bucket",
        "100/second sliding_window", "100/second sliding_log", "100/second fixed_window lockout 1m",
        "1000000/ms",
    ],
)  # fmt: skip
def test_these_are_decided_directly(text: str) -> None:
    limit = Limit.parse(text) if text != "1000000/ms" else Limit(1_000_000, "1ms", burst=1000)
    assert law.terms_of(limit) is None


def test_the_terms_follow_the_limit() -> None:
    terms = law.terms_of(Limit.parse("10000/second"))
    assert terms is not None
    assert (terms.horizon, terms.ttl) == (100 * MILLISECOND, SECOND)
    terms = law.terms_of(Limit.parse("1000/second burst 100"))
    assert terms is not None
    assert (terms.horizon, terms.cover, terms.ttl) == (
        25 * MILLISECOND, 50 * MILLISECOND, SECOND // 2,
    )  # fmt: skip
