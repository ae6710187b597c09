"""Sites, cuts, delays, repeats, dead agents: no interval sees more than burst + rate x time."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from stores.regions.world import World

# `make soak` asks for more.
LONG = int(os.environ.get("PENSTOCK_EXAMPLES", "100")) > 100
LIMITS = ["100/second", "30/second burst 200", "600/minute burst 40", "5000/second burst 900"]
FLOORS = [[100_000, 200_000, 100_000], [333_333, 333_333, 333_334], [50_000, 500_000]]
SITES = st.integers(0, 2)


class Regions(RuleBasedStateMachine):
    @initialize(
        limit=st.sampled_from(LIMITS), floors=st.sampled_from(FLOORS), seed=st.integers(0, 10**6),
        is_skewed=st.booleans(),
    )  # fmt: skip
    def begin(self, limit: str, floors: list[int], seed: int, is_skewed: bool) -> None:
        self.world = World(limit, floors, seed=seed, is_skewed=is_skewed)
        for _ in range(3):  # the home has to be old enough to grant floors
            self.rounds(20)
            self.world.pass_time(2_000)

    def site(self, number: int):  # type: ignore[no-untyped-def]  # as hypothesis' own
        return self.world.sites[number % len(self.world.sites)]

    @rule(milliseconds=st.sampled_from([1, 30, 200, 900, 2_950, 3_400]))
    def pass_time(self, milliseconds: int) -> None:
        self.world.pass_time(milliseconds)

    @rule(number=SITES, count=st.sampled_from([1, 20, 300]))
    def load(self, number: int, count: int) -> None:
        self.world.hit(self.site(number), count)

    @rule(milliseconds=st.sampled_from([50, 300]))
    def rounds(self, milliseconds: int) -> None:
        """All sites are asked for little or a lot, and report, one after the other."""
        for site in self.world.sites:
            self.world.hit(site, self.world.chance.choice([0, 5, 100, 700]))
            self.world.run_round(site, milliseconds // 4)
            self.world.pass_time(milliseconds)

    @rule(number=SITES, is_applied=st.booleans(), then=st.integers(1, 3))
    def lost(self, number: int, is_applied: bool, then: int) -> None:
        """A site is asked for less. What the home says to that is lost; or that it was applied.
        The others are asked for more, then all spend what they have."""
        site = self.site(number)
        self.world.pass_time(500)
        self.world.lose(site, is_applied)
        for _ in range(then):
            for other in self.world.sites:
                if other is not site:
                    self.world.hit(other, 700)
                    self.world.run_round(other, 20)
        for each in self.world.sites:
            self.world.hit(each, 700)

    @rule(number=SITES, units=st.integers(1, 40), milliseconds=st.sampled_from([100, 2_000]))
    def lease(self, number: int, units: int, milliseconds: int) -> None:
        self.world.lease(self.site(number), units, milliseconds)

    @rule(number=SITES)
    def spend(self, number: int) -> None:
        self.world.spend(self.site(number))

    @rule(number=SITES, instance=st.integers(0, 1), steps=st.integers(1, 12))
    def step(self, number: int, instance: int, steps: int) -> None:
        """A round goes on for some messages, and stays there."""
        site = self.site(number)
        self.world.begin(site.instances[instance])
        for _ in range(steps):
            self.world.deliver(site, site.instances[instance])
            self.world.respond(site.instances[instance])

    @rule(number=SITES, instance=st.integers(0, 1), what=st.sampled_from(["deliver", "fail"]))
    def message(self, number: int, instance: int, what: str) -> None:
        site = self.site(number)
        if what == "deliver":  # and the answer is still under way
            self.world.deliver(site, site.instances[instance])
        else:
            self.world.fail(site.instances[instance])

    @rule(number=SITES, instance=st.integers(0, 1))
    def crash(self, number: int, instance: int) -> None:
        site = self.site(number)
        self.world.crash(site, site.instances[instance])

    @rule()
    def repeat(self) -> None:
        self.world.repeat()

    @rule(number=SITES)
    def cut(self, number: int) -> None:
        site = self.site(number)
        site.is_cut_off = not site.is_cut_off

    @rule(number=SITES, floor=st.sampled_from([20_000, 100_000, 300_000]))
    def another_floor(self, number: int, floor: int) -> None:
        """The instances of a site are restarted with another one."""
        site = self.site(number)
        for instance in site.instances:
            self.world.crash(site, instance)
            instance.agent.floor = floor

    @rule()
    def forget(self) -> None:
        self.world.home.forget()


TestRegions = Regions.TestCase
TestRegions.settings = settings(
    max_examples=2_000 if LONG else 60,
    stateful_step_count=80 if LONG else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("seed", range(3_000 if LONG else 60))
def test_random_scenarios_stay_within_the_limit(seed: int) -> None:
    chance = random.Random(seed)
    machine = Regions()
    machine.begin(chance.choice(LIMITS), chance.choice(FLOORS), seed, seed % 2 == 1)
    for _ in range(150):
        number, instance = chance.randrange(3), chance.randrange(2)
        steps: list[tuple[str, tuple[Any, ...]]] = [
            ("pass_time", (chance.choice([1, 30, 200, 900, 2_950, 3_400]),)),
            ("load", (number, chance.choice([20, 300]))),
            ("load", (number, chance.choice([20, 300]))),
            ("rounds", (50,)),
            ("rounds", (300,)),
            ("lease", (number, chance.randint(1, 40), chance.choice([100, 2_000]))),
            ("spend", (number,)),
            ("step", (number, instance, chance.randint(1, 12))),
            ("message", (number, instance, chance.choice(["deliver", "fail"]))),
            ("crash", (number, instance)),
            ("repeat", ()),
            ("cut", (number,)),
            ("lost", (number, chance.random() < 0.5, chance.randint(1, 3))),
        ]
        if chance.random() < 0.1:
            floor = chance.choice([20_000, 100_000, 300_000])
            steps += [("another_floor", (number, floor)), ("forget", ())]
        name, arguments = chance.choice(steps)
        getattr(machine, name)(*arguments)
    assert machine.world.admitted
