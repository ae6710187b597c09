"""Random rules and requests: what a gate consumes, against a plain model of it."""

from __future__ import annotations

import pytest

pytest.importorskip("yaml")

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Descriptor, Gate, MemoryStore
from penstock.testing import FakeClock

KEYS = ("a", "b", "c")
VALUES = ("1", "2")

limits = st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True)
rules = st.dictionaries(st.sampled_from(KEYS), limits, min_size=1)
requests = st.lists(
    st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)), min_size=1, max_size=4),
    max_size=25,
)


@settings(deadline=None)
@given(rules, requests, st.integers(1, 3))
def test_all_limits_of_a_request_pass_or_nothing_is_consumed(
    limits: dict[str, list[int]], sent: list[list[tuple[str, str]]], hits: int
) -> None:
    steps = [
        {"key": key, "limits": [f"{amount}/day" for amount in amounts]}
        for key, amounts in limits.items()
    ]
    store = MemoryStore(clock=FakeClock())
    gate = Gate.from_rules({"domain": "api", "descriptors": steps}, store)
    used: dict[tuple[str, str], int] = {}
    for request in sent:
        wanted: dict[tuple[str, str], int] = {}
        for pair in request:
            if pair[0] in limits:
                wanted[pair] = wanted.get(pair, 0) + hits
        passes = all(used.get(p, 0) + n <= min(limits[p[0]]) for p, n in wanted.items())
        verdict = gate.check(*[[pair] for pair in request], hits=hits)
        assert verdict.allowed == passes
        assert len(verdict.statuses) == len(request)
        if passes:
            for pair, count in wanted.items():
                used[pair] = used.get(pair, 0) + count
        elif verdict.decision is not None:
            assert verdict.rule is not None
            assert not verdict.decision
        for pair in wanted:
            look = gate.check(Descriptor.of([pair], hits=0)).statuses[0].decision
            assert look is not None
            assert look.remaining == min(limits[pair[0]]) - used.get(pair, 0)
