"""Random rules of every mode and random requests, against a plain account of them.

The account is written from what Envoy's service does, not from how `Check` works: it is told
the rules as a table, and holds a number for each counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("yaml")

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Descriptor, Gate, Limit, MemoryStore
from penstock.testing import FakeClock

KEYS = ("a", "b", "c", "d")
DENIED, ALLOWED = "bad", "good"


@dataclass(frozen=True)
class Step:
    """A rule. ``kind`` is limits, envoy, mixed, unlimited or closed."""

    kind: str
    amounts: tuple[int, ...]
    quota: bool
    shadow: bool
    replaces: str | None  # the key of the rule whose limit it replaces

    def written(self, key: str) -> dict[str, Any]:
        step: dict[str, Any] = {"key": key, "deny": [DENIED], "allow": [ALLOWED]}
        own = [f"{amount}/day fixed_window" for amount in self.amounts]
        if self.kind != "limits":
            rate: dict[str, Any] = {"name": key}
            if self.kind == "unlimited":
                rate["unlimited"] = True
            else:
                amount = 0 if self.kind == "closed" else self.amounts[0]
                rate |= {"unit": "day", "requests_per_unit": amount}
            if self.replaces is not None and self.replaces != key:
                rate["replaces"] = [{"name": self.replaces}]
            step["rate_limit"] = rate
        if self.kind == "limits":
            step["limits"] = own
        elif self.kind == "mixed" and own[1:]:
            step["limits"] = own[1:]
        return step | {"quota_mode": self.quota, "shadow_mode": self.shadow}

    def limits(self) -> list[tuple[int, bool]]:
        """The amount of each, and whether it is in Envoy's words."""
        if self.kind == "limits":
            return [(amount, False) for amount in self.amounts]
        if self.kind == "envoy":
            return [(self.amounts[0], True)]
        if self.kind == "mixed":
            return [(amount, at == 0) for at, amount in enumerate(self.amounts)]
        return []


@dataclass(frozen=True)
class Ask:
    key: str
    value: str
    hits: int | None


# Where it stands in its rule, how much it allows, and whether it books this in any case.
Counter = tuple[int, int, bool]


class Account:
    """What every counter should hold."""

    def __init__(self, rules: dict[str, Step], denied: bool) -> None:
        self.rules = rules
        self.denied = denied  # whether the domain denies what the steps deny
        self.used: dict[tuple[str, str, int], int] = {}

    def ask(self, asks: list[Ask], hits_of_all: int) -> tuple[bool, list[bool] | None]:
        """Whether the request passes, and each descriptor; None if it was denied unseen."""
        gone = {
            rule.replaces
            for ask in asks
            if (rule := self.rules.get(ask.key)) and rule.kind != "limits" and rule.replaces
            and rule.replaces != ask.key
        }  # fmt: skip
        listed = self.denied and any(ask.value == DENIED for ask in asks)
        codes: list[bool] = []
        quotas: list[bool] = []
        counted: list[tuple[Ask, list[Counter], int, bool, bool]] = []
        refused = listed
        for ask in asks:
            rule = self.rules.get(ask.key)
            hits = hits_of_all if ask.hits is None else ask.hits
            passes, quota = True, rule is not None and rule.quota
            if rule is not None and ask.value == DENIED:
                passes = rule.shadow or hits < 0
            elif rule is not None and ask.value != ALLOWED:
                replaced = rule.kind != "limits" and ask.key in gone
                debit = hits > 1 or (ask.hits is not None and hits == 1)
                limits = [
                    (at, amount, envoy and debit)
                    for at, (amount, envoy) in enumerate(rule.limits())
                    if not (replaced and envoy)
                ]
                closed = rule.kind == "closed" and not replaced
                if replaced and not limits and rule.kind != "unlimited":
                    quota = False
                passes = rule.shadow or hits < 0 or (not closed and self.fits(ask, limits, hits))
                counted.append((ask, limits, hits, rule.shadow, passes))
            codes.append(passes)
            if quota:
                quotas.append(passes)
            elif not passes:
                refused = True
        allowed = not refused and (not quotas or any(quotas))
        for ask, limits, hits, shadow, passes in counted:
            self.book(ask, limits, hits, shadow, passes and allowed, listed)
        if listed:
            return False, None
        # Where somebody is denied, the other limits are not looked at.
        unseen = any(ask.value == DENIED and ask.key in self.rules for ask in asks)
        return allowed, None if unseen else codes

    def fits(self, ask: Ask, limits: list[Counter], hits: int) -> bool:
        if hits < 0:
            return True
        return all(
            self.used.get((ask.key, ask.value, at), 0) + hits <= amount for at, amount, _ in limits
        )

    def book(
        self, ask: Ask, limits: list[Counter], hits: int, shadow: bool, passes: bool, listed: bool
    ) -> None:
        if listed and hits < 0:
            return  # nothing is given back to a request that the domain denies
        whole = self.fits(ask, limits, hits) if shadow else passes
        for at, _, debit in limits:
            counter = ask.key, ask.value, at
            if hits < 0 or whole or debit:
                self.used[counter] = max(0, self.used.get(counter, 0) + hits)


STEPS = st.builds(
    Step,
    st.sampled_from(["limits", "envoy", "mixed", "unlimited", "closed"]),
    st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True).map(tuple),
    st.booleans(),
    st.integers(0, 3).map(lambda n: n == 0),
    st.one_of(st.none(), st.none(), st.sampled_from(KEYS)),
)
ASKS = st.builds(
    Ask,
    st.sampled_from((*KEYS, "unknown")),
    st.sampled_from(["1", "1", "2", DENIED, ALLOWED]),
    st.sampled_from([None, None, None, 0, 1, 2, 5, -2]),
)
REQUESTS = st.tuples(
    st.lists(ASKS, min_size=1, max_size=4, unique_by=lambda ask: (ask.key, ask.value)),
    st.sampled_from([1, 1, 1, 3]),
)


@settings(deadline=None, max_examples=settings.default.max_examples * 3)
@given(
    st.dictionaries(st.sampled_from(KEYS), STEPS, min_size=1),
    st.lists(REQUESTS, max_size=25),
    st.booleans(),
)
def test_every_combination_is_judged_and_counted_as_it_should_be(
    rules: dict[str, Step], requests: list[tuple[list[Ask], int]], denied: bool
) -> None:
    text: dict[str, Any] = {
        "domain": "api",
        "descriptors": [step.written(key) for key, step in rules.items()],
    }
    if denied:
        text["deny"] = {key: [DENIED] for key in (*KEYS, "unknown")}
    clock = FakeClock(1_700_000_000 * 10**9)
    gate = Gate.from_rules(text, MemoryStore(clock=clock), clock=clock)
    account = Account(rules, denied)
    for asks, hits in requests:
        allowed, codes = account.ask(asks, hits)
        verdict = gate.check(
            *[Descriptor.of({ask.key: ask.value}, hits=ask.hits) for ask in asks], hits=hits
        )
        assert verdict.allowed == allowed
        if codes is not None:
            assert [status.allowed for status in verdict.statuses] == codes
        for key, step in rules.items():
            for value in ("1", "2", DENIED, ALLOWED):
                for at, (amount, _) in enumerate(step.limits()):
                    counters = gate.store.counters(Limit(amount, "day", algorithm="fixed_window"))
                    used = amount - counters.peek(f"api|{key}={value}", 1)._room
                    assert used == account.used.get((key, value, at), 0), (key, value, amount)
