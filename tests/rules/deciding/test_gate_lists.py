"""What a gate says without counting: who is denied, and whether two requests are treated alike."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("yaml")

from penstock import AsyncGate, Gate

RULES = """
domain: api
deny: {user: [eve]}
allow: {path: [/health]}
descriptors:
  - key: user
    limits: 1/hour
    deny: [mallory]
  - key: path
    limits: 5/hour
  - key: path
    value: /login
    limits: 5/hour
  - key: path
    value: /free/*
    rate_limit: {unlimited: true}
  - key: path
    value: /shut
    rate_limit: {unit: day, requests_per_unit: 0}
"""


@pytest.mark.parametrize("kind", [Gate, AsyncGate])
def test_who_is_denied_and_nothing_is_counted(kind: type[Gate]) -> None:
    gate = kind.from_rules(RULES)
    for user in ("eve", "mallory"):
        verdict = gate.denial({"user": user})
        assert verdict is not None
        assert not verdict
        assert {status.reason for status in verdict.statuses} == {"deny list"}
    for _ in range(3):
        assert gate.denial({"user": "ann"}, {"path": "/shut"}) is None
    gate.switches.deny("user", "ann", lasts="1h")
    assert gate.denial({"user": "ann"}) is not None
    gate.switches.mode("shadow")
    assert gate.denial({"user": "ann"})
    gate.switches.mode("off")
    assert gate.denial({"user": "ann"}) is None


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("/a", "/b", True),
        ("/a", "/login", False),
        ("/login", "/login", True),
        ("/free/a", "/free/b", True),
        ("/free/a", "/free", False),
        ("/shut", "/a", False),
        ("/health", "/a", False),
    ],
)
def test_whether_two_requests_are_treated_alike(one: str, other: str, alike: bool) -> None:
    gate = Gate.from_rules(RULES)

    def asked(path: str) -> list[Any]:
        return [{"path": path}, {"user": "ann"}]

    assert gate.treats_alike(asked(one), asked(other)) is alike
    assert gate.treats_alike(asked(other), asked(one)) is alike


def test_switches_make_a_difference() -> None:
    gate = Gate.from_rules(RULES)
    pair = ([{"path": "/a"}], [{"path": "/b"}])
    assert gate.treats_alike(*pair)
    gate.switches.override("path", "/a", factor=2)
    assert not gate.treats_alike(*pair)
    gate = Gate.from_rules(RULES)
    gate.switches.allow("path", "/b")
    assert not gate.treats_alike(*pair)
    assert gate.enforces
    gate.switches.mode("shadow")
    assert not gate.enforces
