"""The key ``lease`` of rules, over a real server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import Gate, Limit, MemoryStore
from penstock.durations import MILLISECOND
from penstock.rules.deciding.verdict import Descriptor
from penstock.rules.reading import steps
from penstock.stores.leased import LeasedStore, law
from penstock.stores.leased.counters import LeasedCounters
from penstock.stores.redis import RedisStore
from stores.redis_server import wait_until

# A long window: nothing comes back by itself while a test looks.
LIMIT = "1000000/day fixed_window"
TENANT = {"tenant": "acme"}
Make = Callable[..., tuple[Gate, LeasedStore]]


def rules(lease: Any = None, limits: str = LIMIT) -> dict[str, Any]:
    return {"domain": "api", "descriptors": [{"key": "tenant", "limits": limits, "lease": lease}]}


@pytest.fixture
def make(redis_url: str, prefix: str) -> Iterator[Make]:
    made: list[LeasedStore] = []

    def start(lease: Any = None) -> tuple[Gate, LeasedStore]:
        made.append(
            LeasedStore(RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s"))
        )
        return Gate.from_rules(rules(lease), made[-1]), made[-1]

    yield start
    for store in made:
        store.close()


def hit(gate: Gate, count: int, descriptor: Any = TENANT) -> int:
    return sum(bool(gate.check(descriptor)) for _ in range(count))


def hit_until(gate: Gate, met: Callable[[], bool], what: str) -> int:
    """Hit until it is so; how often."""
    hits = 0

    def is_met() -> bool:
        nonlocal hits
        hits += hit(gate, 20)
        return met()

    wait_until(is_met, what, 60)
    return hits


def used(store: LeasedStore) -> int:
    """Units that the counter in Redis has given away."""
    gate = Gate.from_rules(rules(), store.redis)
    decision = gate.check(Descriptor.of(TENANT, hits=0)).statuses[0].decision
    assert decision is not None
    return decision.limit.burst - decision.remaining


def horizons(store: LeasedStore) -> set[int]:
    """Of the leases that the store has now."""
    return {lease.terms.horizon for each in store._leased for lease in [*each.leases.values()]}


@pytest.mark.parametrize("lease", [None, True])
def test_hot_keys_are_leased_unless_the_rule_says_no(make: Make, lease: bool | None) -> None:
    gate, store = make(lease)
    hit_until(gate, lambda: store.stats().decided_here > 100, "decisions from a lease")


def test_false_is_decided_directly(make: Make) -> None:
    gate, store = make(False)
    assert hit(gate, 300) == 300
    stats = store.stats()
    assert (stats.leases, stats.decided_here, stats.decided_directly) == (0, 0, 0)
    assert used(store) == 300


def test_false_is_also_for_overrides_and_for_limits_of_requests(make: Make) -> None:
    gate, store = make(False)
    gate.switches.override("tenant", "acme", factor=2)
    hit(gate, 150)
    hit(gate, 150, Descriptor.of(TENANT, limit=Limit.parse("5000/minute")))
    assert store.stats().leases == 0
    assert store.stats().decided_directly == 0


def test_a_horizon_of_its_own(make: Make) -> None:
    gate, store = make({"horizon": "20ms"})
    total = hit_until(gate, lambda: store.stats().held > 0, "units in hand")
    assert horizons(store) == {20 * MILLISECOND}
    assert used(store) > total
    assert store.release(Limit.parse(LIMIT))
    assert store.stats().leases == 0
    assert used(store) == total, "what was in hand has come back"


def test_the_same_horizon_as_the_store_is_no_other_kind(make: Make) -> None:
    _, store = make()
    limit = Limit.parse(LIMIT)
    assert store.counters_with(limit, 100 * MILLISECOND) is store.counters(limit)
    own = store.counters_with(limit, 20 * MILLISECOND)
    assert own is store.counters_with(limit, 20 * MILLISECOND)
    assert own is not store.counters(limit)
    assert isinstance(own, LeasedCounters)
    assert store.counters_with(limit, False) is store.redis.counters(limit)
    with pytest.raises(ValueError, match="horizon is from 1ms to 1s, not 2s"):
        store.counters_with(limit, 2000 * MILLISECOND)


def test_a_reload_that_changes_lease_loses_and_gives_nothing(make: Make) -> None:
    """What was used stays used, and what is in hand comes back."""
    gate, store = make(True)
    total = hit_until(gate, lambda: store.stats().held > 0, "units in hand")
    for lease in (False, {"horizon": "20ms"}, {"horizon": "50ms"}, None, False):
        gate.replace(rules(lease))
        total += hit(gate, 200)
    assert used(store) >= total
    wait_until(lambda: store.stats().leases == 0, "leases that nobody uses go back", 60)
    assert used(store) == total


def test_a_store_that_cannot_lease_warns_and_decides(caplog: pytest.LogCaptureFixture) -> None:
    def warnings() -> list[str]:
        messages = [each.getMessage() for each in caplog.records if each.levelno > logging.INFO]
        caplog.clear()
        return messages

    gate = Gate.from_rules(rules(False), MemoryStore())
    assert warnings() == []
    for lease in (True, {"horizon": "20ms"}):
        gate.replace(rules(lease))
        (message,) = warnings()
        assert (
            "'lease' has no effect in 1 rule(s) (api/tenant): the store does not lease" in message
        )
    assert hit(gate, 20) == 20
    Gate.from_rules(rules(True), MemoryStore())
    assert len(warnings()) == 1


def test_a_store_that_leases_does_not_warn(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    make(True)
    assert not [each for each in caplog.records if each.levelno > logging.INFO]


def test_rules_know_the_horizons_that_the_store_takes() -> None:
    assert steps.SHORTEST_HORIZON == law.SHORTEST_HORIZON
    assert steps.LONGEST_HORIZON == law.LONGEST_HORIZON
