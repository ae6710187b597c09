"""Random chains of rules and requests, against a model that remembers everything.

The model keeps every generation of the rules, and for each key the last one in which it asked.
A key that asks looks at all limits that were in force since then, and takes the largest part
of any of them that is used.
"""

from __future__ import annotations

import pytest

pytest.importorskip("yaml")

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Descriptor, Gate, MemoryStore
from penstock.testing import FakeClock

# Name: period in seconds.
NAMES = {"a": 60, "b": 3600}
KEYS = ("1", "2", "3")
Amounts = tuple[int, int]

generations = st.tuples(st.integers(1, 9), st.integers(4, 20))
steps = st.one_of(
    st.tuples(st.just("reload"), generations, st.booleans()),
    st.tuples(st.just("ask"), st.sampled_from(KEYS), st.integers(1, 5)),
    st.tuples(st.just("ask"), st.sampled_from(KEYS), st.integers(1, 5)),
    st.tuples(st.just("look"), st.sampled_from(KEYS), st.none()),
    st.tuples(st.just("wait"), st.sampled_from((1, 30, 60, 1800)), st.none()),
)


class Model:
    """The limits are windows that begin with a key's first hit: (end, used)."""

    def __init__(self, first: Amounts) -> None:
        self.now = 0
        self.generations: list[dict[str, int]] = [dict(zip(NAMES, first, strict=True))]
        self.asked: dict[str, int] = {}
        self.rows: dict[tuple[str, int, str], tuple[int, int]] = {}

    def used(self, name: str, amount: int, key: str) -> int:
        end, used = self.rows.get((name, amount, key), (0, 0))
        return used if end > self.now else 0

    def put(self, name: str, amount: int, key: str, used: int) -> None:
        end, _ = self.rows.get((name, amount, key), (0, 0))
        self.rows[name, amount, key] = (
            end if end > self.now else self.now + NAMES[name],
            used,
        )

    def arrive(self, key: str) -> None:
        current = self.generations[-1]
        for old in self.generations[self.asked.get(key, 0) : -1]:
            for name, amount in current.items():
                part = -(-self.used(name, old[name], key) * amount // old[name])
                if part > self.used(name, amount, key):
                    self.put(name, amount, key, part)
        self.asked[key] = len(self.generations) - 1

    def left(self, key: str) -> dict[str, int]:
        self.arrive(key)
        return {
            name: max(0, amount - self.used(name, amount, key))
            for name, amount in self.generations[-1].items()
        }

    def ask(self, key: str) -> bool:
        if not all(self.left(key).values()):
            return False
        for name, amount in self.generations[-1].items():
            self.put(name, amount, key, self.used(name, amount, key) + 1)
        return True


def rules(amounts: Amounts, swapped: bool) -> dict[str, object]:
    limits = [
        {"name": name, "limit": f"{amount}/{period}s fixed_window align first_hit"}
        for (name, period), amount in zip(NAMES.items(), amounts, strict=True)
    ]
    descriptors = [{"key": "user", "limits": limits[::-1] if swapped else limits}]
    return {"domain": "api", "descriptors": descriptors}


@settings(deadline=None, max_examples=300)
@given(generations, st.lists(steps, max_size=40))
def test_usage_follows_any_chain_of_reloads(first: Amounts, chain: list[tuple[str, ...]]) -> None:
    clock = FakeClock(10**18)
    gate = Gate.from_rules(rules(first, False), MemoryStore(clock=clock), clock=clock)
    model = Model(first)
    for verb, what, more in chain:
        if verb == "reload":
            gate.replace(rules(what, bool(more)))  # type: ignore[arg-type]
            model.generations.append(dict(zip(NAMES, what, strict=True)))  # type: ignore[arg-type]
        elif verb == "wait":
            clock.advance(int(what))
            model.now += int(what)
        elif verb == "look":
            assert left(gate, what) == min(model.left(what).values())
        else:
            for _ in range(int(more)):
                assert bool(gate.check({"user": what})) == model.ask(what)
    for key in KEYS:
        assert left(gate, key) == min(model.left(key).values())


def left(gate: Gate, key: str) -> int:
    decision = gate.check(Descriptor.of({"user": key}, hits=0)).decision
    assert decision is not None
    return decision.remaining
