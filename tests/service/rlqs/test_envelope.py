"""Envoys, services and one bank in virtual time: no interval sees more than burst + rate x time."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from service.rlqs.scenarios import LIMITS, Scenario

# `make soak` asks for more.
LONG = int(os.environ.get("PENSTOCK_EXAMPLES", "100")) > 100


class Fleet(RuleBasedStateMachine):
    """Envoys come, go and reconnect; servers crash; messages are slow, and proofs are lost."""

    @initialize(limit=st.sampled_from(LIMITS), seed=st.integers(0, 10**6), can_prove=st.booleans())
    def begin(self, limit: str, seed: int, can_prove: bool) -> None:
        self.scenario = Scenario(seed, limit, can_prove)

    @rule(milliseconds=st.sampled_from([300, 1_000, 3_000, 7_000, 12_000]))
    def load(self, milliseconds: int) -> None:
        self.scenario.load(milliseconds)

    @rule()
    def drain(self) -> None:
        self.scenario.drain()
        self.scenario.check()

    @rule()
    def come(self) -> None:
        self.scenario.come()

    @rule(
        fault=st.sampled_from(["kill", "disconnect", "crash", "restart", "outage", "weather"]),
    )
    def fail(self, fault: str) -> None:
        getattr(self.scenario, fault)()


TestFleet = Fleet.TestCase
TestFleet.settings = settings(
    max_examples=1_000 if LONG else 25,
    stateful_step_count=60 if LONG else 30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("seed", range(400 if LONG else 12))
def test_random_scenarios_stay_within_the_limit(seed: int) -> None:
    scenario = Scenario(seed)
    scenario.run(40)
    assert scenario.envelope.admitted
