"""An override may ask for a limit that cannot be counted by: then it is not taken."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("yaml")

from penstock import Gate, LimitError, SharedMemoryStore
from penstock.rules.deciding.overrides import takes
from penstock.testing import FakeClock

RULES = """
domain: api
descriptors:
  - {key: user, limits: 5/minute sliding_log}
  - key: plan
    value: gold*
    descriptors:
      - {key: user, limits: 5/hour}
"""


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    clock = FakeClock(1_700_000_000 * 10**9)
    store = SharedMemoryStore(tmp_path / "file", clock=clock, bytes_per_key=256)
    return Gate.from_rules(RULES, store, clock=clock)


def test_what_the_store_cannot_hold_is_refused(gate: Gate) -> None:
    with pytest.raises(LimitError, match="user=1 cannot be: of api/user, 5/minute sliding_log"):
        gate.switches.override("user", "1", factor=10)
    assert gate.switches.calm
    assert gate.check({"user": "1"})
    with pytest.raises(LimitError, match="50/minute sliding_log cannot be counted"):
        gate.switches.override("user", "1", limit="50/minute sliding_log")
    with pytest.raises(LimitError, match=r"needs 864 bytes a key"):
        gate.switches.override("nobody", "1", limit="50/minute sliding_log")


def test_only_the_rules_that_it_touches_matter(gate: Gate) -> None:
    gate.switches.override("plan", "gold-2", factor=10)
    assert gate.check({"plan": "gold-2", "user": "1"}).decision.remaining == 49  # type: ignore[union-attr]
    gate.switches.override("user", "1", factor=2)
    assert gate.check({"user": "1"}).decision.remaining == 9  # type: ignore[union-attr]


def test_a_reload_that_makes_one_impossible_leaves_it_out(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    gate.switches.override("user", "1", factor=2)
    gate.switches.override("user", "2", limit="7/minute")
    with caplog.at_level(logging.WARNING, "penstock.rules"):
        gate.replace(RULES.replace("5/minute", "9/minute"))
    (record,) = caplog.records
    assert "override of user=1 is left out there: of api/user, 9/minute" in record.getMessage()
    assert gate.check({"user": "1"}).decision.remaining == 8, "the rule's own limit holds"  # type: ignore[union-attr]
    assert gate.check({"user": "2"}).decision.remaining == 6  # type: ignore[union-attr]
    verdict = gate.check({"plan": "gold", "user": "1"})
    assert verdict.decision.remaining == 9, "where it can be counted by, it holds"  # type: ignore[union-attr]
    gate.replace(RULES)
    decision = gate.check({"user": "1"}).decision
    assert decision is not None
    assert decision.remaining == 7, "1 of 9 is 2 of 10, and one more"


def test_wildcards_of_rules_do_not_backtrack() -> None:
    """A regular expression takes minutes for this value; the test would time out."""
    value = "a" * 4000
    assert not takes("*a*a*a*a*b", value)
    assert takes("*a*a*a*a*b", f"{value}b")
