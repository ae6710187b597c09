"""Three instances of two workers each on one Valkey, under load from Envoy and over HTTP.

Whatever an operator changes is in force everywhere within a second. No request fails, and none
sees half of a change: `left` and `right` always change together.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("redis")

from running.e2e.fleet import Fleet
from running.e2e.fleet_load import FleetLoad, Sample, State, envoy_errors, start_envoy
from running.e2e.running import reserved_port
from stores.conftest import own_server, server_binary  # noqa: F401  # fixtures
from stores.redis_server import wait_until

PATIENCE = 60.0
ROUNDS = 4
SECOND = 1.0
# Seconds without the store; `make soak` takes 30.
OUTAGE = float(os.environ.get("PENSTOCK_OUTAGE", "4"))
RULES = """
domain: edge
descriptors:
  - key: tenant
    descriptors:
      - {key: left, limits: AMOUNT/hour}
      - {key: right, limits: AMOUNT/hour}
  - {key: user, limits: 2/hour}
"""
FIRST = RULES.replace("AMOUNT", "1000000")
SECOND_SET = RULES.replace("AMOUNT", "2000000")
BAD = FIRST.replace("2/hour", "2/fortnight")


def both(reason: str, limit: str | None) -> State:
    return ((reason, limit), (reason, limit))


OLD, NEW = both("limit", "1000000/hour"), both("limit", "2000000/hour")
OVERRIDDEN = both("limit", "3000000/hour")
LEFT_OFF: State = (("switched off", None), ("limit", "1000000/hour"))
ALL_OFF = both("limit", None)


@pytest.fixture
def fleet(own_server: Any, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    fleet = Fleet(own_server("--appendonly", "yes"), tmp_path)
    fleet.push(FIRST)
    fleet.start()
    try:
        yield fleet
    finally:
        fleet.end()


class Loaded:
    """A fleet under load, and its Envoy."""

    def __init__(self, fleet: Fleet, app: int, stack: ExitStack) -> None:
        self.fleet = fleet
        admin, *ports = [stack.enter_context(reserved_port()) for _ in range(4)]
        self._envoy = start_envoy(app, admin, ports, fleet)
        stack.callback(self._envoy.end)
        self._admin = f"127.0.0.1:{admin}"
        self.load = FleetLoad(fleet, [f"127.0.0.1:{port}" for port in ports], "acme")
        stack.callback(self.load.end)
        self.until(OLD)

    def until(self, state: State) -> None:
        """All instances answer like this."""
        wait_until(
            lambda: self.load.states(3) == [state] * 3, f"{state} in all of {self.load.states(3)}",
            PATIENCE,
        )  # fmt: skip

    def changed_at(self) -> float:
        (last,) = self.fleet.ask("admin", "changes", "--limit", "1")["changes"]
        return float(last["at"])

    def lag(self, change: Callable[[], object], before: State, after: State) -> float:
        """Make a change; seconds until the last answer by what was there before."""
        change()
        at = self.changed_at()
        self.until(after)
        end = time.time() + SECOND
        wait_until(lambda: self.load.samples[-1].asked > end, "a second more", PATIENCE)
        return self.load.lag(at, before)

    def check(self, states: set[State]) -> None:
        """No request failed, and none saw anything but these states."""
        load = self.load
        assert not load.errors, load.errors[:5]
        assert load.statuses.keys() <= {"http 200", "http 429", "envoy 200", "envoy 429"}
        assert load.statuses["envoy 429"], "users are refused"
        assert envoy_errors(self._admin) == 0
        half: list[Sample] = [each for each in load.samples if each.state not in states]
        assert half == []
        assert len(load.samples) > 300


@pytest.fixture
def loaded(fleet: Fleet, app: int) -> Iterator[Loaded]:
    with ExitStack() as stack:
        yield Loaded(fleet, app, stack)


@pytest.mark.timeout(600)
def test_changes_are_in_force_everywhere_within_a_second(loaded: Loaded) -> None:
    fleet = loaded.fleet
    numbers: list[int] = []

    def undo() -> None:
        """The last change, at any instance."""
        (last,) = fleet.ask("admin", "changes", "--limit", "1")["changes"]
        numbers.append(last["number"])
        fleet.admin(len(numbers) % 3, "undo", str(last["number"]))

    # By the command line, at one instance after the other, and through the store itself.
    steps: dict[str, tuple[Callable[[], object], State, State]] = {
        "push": (lambda: fleet.push(SECOND_SET), OLD, NEW),
        "rollback": (lambda: fleet.penstock("rules", "rollback", "1"), NEW, OLD),
        "override": (
            lambda: fleet.admin(0, "override", "set", "tenant=acme", "3000000/hour", "--for", "1h"),
            OLD, OVERRIDDEN,
        ),
        "undo of the override": (undo, OVERRIDDEN, OLD),
        "switch": (lambda: fleet.admin(1, "switch", "edge/tenant/left", "off"), OLD, LEFT_OFF),
        "undo of the switch": (undo, LEFT_OFF, OLD),
        "kill switch": (
            lambda: fleet.penstock(
                "admin", "switch", "all", "off", "--for", "1h", "--control", fleet.valkey.url
            ),
            OLD, ALL_OFF,
        ),
        "undo of the kill switch": (undo, ALL_OFF, OLD),
    }  # fmt: skip
    best = dict.fromkeys(steps, PATIENCE)
    for number in range(ROUNDS):
        for name, (change, before, after) in steps.items():
            best[name] = min(best[name], loaded.lag(change, before, after))
        if number == 0:
            assert "1 problem: nothing was changed" in fleet.push(BAD, code=1)
            loaded.until(OLD)
        if max(best.values()) < SECOND:
            break  # a busy machine gets more attempts
    loaded.load.end()
    loaded.check({OLD, NEW, OVERRIDDEN, LEFT_OFF, ALL_OFF})
    assert max(best.values()) < SECOND, best


@pytest.mark.timeout(600)
def test_the_store_is_away_and_comes_back(loaded: Loaded) -> None:
    fleet = loaded.fleet
    override = ("override", "set", "tenant=acme", "3000000/hour")
    loaded.lag(lambda: fleet.admin(0, *override), OLD, OVERRIDDEN)
    fleet.valkey.kill()
    away = time.monotonic()
    fleet.everywhere(
        lambda each: each.told("/v1/health")["rules"]["control"] == "memory", "cut off"
    )
    # What is tried meanwhile is refused, and says why.
    for words in (
        ("override", "set", "tenant=acme", "x9"), ("switch", "all", "off"), ("undo", "5"),
        ("deny", "add", "tenant=acme"), ("log", "on", "--match", "tenant=acme"),
    ):  # fmt: skip
        assert "nothing was changed, as the control store is away" in fleet.admin(1, *words, code=1)
    assert "the control store is away" in fleet.admin(2, "changes", code=1)
    through = ("--control", fleet.valkey.url)
    assert "is away" in fleet.penstock("admin", "switch", "all", "off", *through, code=1)
    assert fleet.push(SECOND_SET, code=1)
    # Everything goes on.
    asked = len(loaded.load.samples)
    wait_until(lambda: time.monotonic() - away > OUTAGE, "the outage", OUTAGE + PATIENCE)
    assert len(loaded.load.samples) > asked + 10
    for each in fleet.instances:
        health = each.told("/v1/health")
        assert (health["healthy"], health["rules"]["number"]) == (True, 1)
        assert health["rules"]["age"] > OUTAGE / 2
    fleet.valkey.restart()
    fleet.everywhere(
        lambda each: each.told("/v1/health")["rules"]["control"] == "store", "back again"
    )
    assert "in force in 3 instances" in fleet.push(SECOND_SET, "--wait")
    loaded.lag(lambda: fleet.admin(2, "override", "undo", "tenant=acme"), OVERRIDDEN, NEW)
    loaded.load.end()
    loaded.check({OLD, NEW, OVERRIDDEN})


@pytest.mark.timeout(300)
def test_an_instance_that_starts_while_the_store_is_away_reads_its_disk(fleet: Fleet) -> None:
    fleet.admin(0, "override", "set", "user=42", "x3")
    fleet.everywhere(lambda each: each.told("/v1/overrides")["overrides"] != [], "the override")
    fleet.valkey.kill()
    fleet.instances.pop(0).end()
    restarted = fleet.start_one(0)
    health = restarted.told("/v1/health")["rules"]
    assert (health["number"], health["control"]) == (1, "disk")
    answers = [restarted.check({"user": "42"}, domain="edge").status for _ in range(7)]
    assert answers == [200] * 6 + [429]
    fleet.valkey.restart()
    fleet.everywhere(
        lambda each: each.told("/v1/health")["rules"]["control"] == "store", "back again"
    )
    assert "in force in 3 instances" in fleet.push(SECOND_SET, "--wait")
