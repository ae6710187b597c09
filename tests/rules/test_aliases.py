"""`ip` and `remote_address` are two names of one key, wherever descriptors come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Gate, MemoryStore
from penstock.rules.deciding.verdict import UNMATCHED
from penstock.testing import FakeClock

BOTH = ["ip", "remote_address"]
EXAMPLES = Path(__file__).parents[2] / "examples/rules"


def gate_of(*steps: dict[str, Any], **domain: Any) -> Gate:
    rules = {"domain": "web", "descriptors": list(steps), **domain}
    return Gate.from_rules(rules, MemoryStore(clock=FakeClock()), clock=FakeClock())


def other(name: str) -> str:
    return BOTH[1 - BOTH.index(name)]


def passes(check: Callable[[], object], most: int = 20) -> int:
    return sum(bool(check()) for _ in range(most))


@pytest.mark.parametrize("given", BOTH)
@pytest.mark.parametrize("written", BOTH)
def test_a_rule_by_either_name_counts_both(written: str, given: str) -> None:
    gate = gate_of({"key": written, "limits": "3/hour"})
    assert passes(lambda: gate.check({given: "192.0.2.1"})) == 3
    assert not gate.check({other(given): "192.0.2.1"})  # it is one count
    assert gate.check({given: "192.0.2.2"})


@pytest.mark.parametrize("written", BOTH)
def test_below_other_steps_with_values_patterns_and_groups(written: str) -> None:
    steps = [
        {"key": written, "value": "10.*", "limits": "1/hour"},
        {"key": written, "limits": "2/hour", "group": "subnet"},
        {"key": written, "value": "10.0.0.1", "rate_limit": {"unlimited": True}},
    ]
    gate = gate_of({"key": "path", "value": "/login", "descriptors": steps})
    for address, most in (("10.0.0.1", 20), ("10.0.0.2", 1), ("192.0.2.1", 2), ("192.0.2.9", 0)):
        pairs = {"path": "/login", other(written): address}
        assert passes(lambda pairs=pairs: gate.check(pairs)) == most, address


def test_where_rules_use_both_names_each_means_itself() -> None:
    """As an Envoy may send them, with an address of its own and one from a header."""
    gate = gate_of({"key": "ip", "limits": "1/hour"}, {"key": "remote_address", "limits": "2/hour"})
    assert passes(lambda: gate.check({"ip": "192.0.2.1"})) == 1
    assert passes(lambda: gate.check({"remote_address": "192.0.2.1"})) == 2


@pytest.mark.parametrize("written", BOTH)
def test_where_a_request_gives_both_names_each_means_itself(written: str) -> None:
    """Otherwise the address of a load balancer would be counted in addition to the client's."""
    gate = gate_of({"key": written, "limits": "3/hour"})
    given = [{written: "192.0.2.1"}, {other(written): "10.0.0.1"}]
    verdicts = [gate.check(*given) for _ in range(5)]
    assert [bool(verdict) for verdict in verdicts] == [True] * 3 + [False] * 2
    assert {verdict.statuses[1].reason for verdict in verdicts} == {UNMATCHED}
    assert gate.check({other(written): "10.0.0.1"}).statuses[0].reason != UNMATCHED
    same = [{written: "192.0.2.3"}, {other(written): "192.0.2.3"}]
    assert passes(lambda: gate.check(*same)) == 3  # and nothing twice


@pytest.mark.parametrize("written", BOTH)
def test_lists_of_a_domain_apply_under_both_names(written: str) -> None:
    gate = gate_of(
        {"key": "remote_address", "limits": "1/hour"},
        allow={written: ["10.0.0.0/8"]},
        deny={other(written): ["192.0.2.66"]},
    )
    for name in BOTH:
        assert passes(lambda name=name: gate.check({name: "10.1.1.1"})) == 20
        assert not gate.check({name: "192.0.2.66"})
        assert gate.denial({name: "192.0.2.66"}) is not None


@pytest.mark.parametrize("switched", BOTH)
def test_switches_apply_under_both_names(switched: str) -> None:
    gate = gate_of({"key": "ip", "limits": "1/hour"})
    gate.switches.override(switched, "192.0.2.1", factor=4)
    gate.switches.deny(switched, "192.0.2.66")
    gate.switches.allow(switched, "10.0.0.0/8")
    for name, more in (("ip", 4), ("remote_address", 0)):
        assert passes(lambda name=name: gate.check({name: "192.0.2.1"})) == more
        assert not gate.check({name: "192.0.2.66"})
        assert passes(lambda name=name: gate.check({name: "10.1.1.1"})) == 20
    gate.switches.clear_override(switched, "192.0.2.1")
    assert [*gate.switches.state().overrides_by_pair] == []


def test_overrides_of_both_names_keep_their_own() -> None:
    gate = gate_of({"key": "ip", "limits": "1/hour"})
    gate.switches.override("ip", "192.0.2.1", limit="2/hour")
    gate.switches.override("remote_address", "192.0.2.1", limit="3/hour")
    assert passes(lambda: gate.check({"ip": "192.0.2.1"})) == 2
    assert passes(lambda: gate.check({"remote_address": "192.0.2.1"})) == 3


def test_the_explanation_names_the_other_name() -> None:
    gate = gate_of({"key": "ip", "limits": "1/hour"}, deny={"ip": ["192.0.2.66"]})
    (step,) = gate.matchers["web"].trace([("remote_address", "192.0.2.66")])
    assert "'remote_address' is another name of 'ip'" in str(step)
    assert "on the deny list of the domain" in str(step)
    assert "the rule web/ip applies" in str(step)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    ("file", "pairs", "most"),
    [
        ("login", {"path": "/login"}, 5),
        ("sign-up", {"action": "sign-up"}, 10),
        ("ipv6", {}, 20),
    ],
)
def test_the_examples_by_address_count_both_names(
    file: str, pairs: dict[str, str], most: int, name: str
) -> None:
    gate = Gate.from_file(EXAMPLES / f"{file}.yaml", store=MemoryStore(clock=FakeClock()))
    asked = {**pairs, name: "198.51.100.1"}
    assert passes(lambda: gate.check(asked), 40) == most
