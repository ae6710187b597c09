"""A few inputs of the fuzzer, always the same; ``make fuzz`` tries others, for longer."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from penstock.errors import RulesError
from penstock.rules.reading import steps
from penstock.rules.reading.parse import parse_text
from rules.reading import fuzz
from rules.reading.fuzz_inputs import EVERYTHING, MUTATORS


def test_only_rules_errors_come_out() -> None:
    assert fuzz.run(600, seed=1, most=300) == 300


@pytest.mark.parametrize("mutator", MUTATORS, ids=lambda mutator: mutator.__name__)
def test_every_mutator_is_refused_now_and_then(mutator: Callable[[random.Random], str]) -> None:
    """A mutator whose inputs are all fine would test nothing."""
    chance = random.Random(1)
    results = [fuzz.check(mutator(chance)) for _ in range(30)]
    assert not all(results)


def test_the_seed_with_everything_is_valid() -> None:
    parse_text(EVERYTHING)


def test_the_fuzzer_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must be able to fail: a crash, ids that collide, and a message without end."""
    text = "domain: a\ndescriptors:\n  - {key: k, value: x=y, limits: 5/day}\n"
    twins = text + "  - {key: k=x, value: y, limits: 5/day}\n"
    assert fuzz.check(twins)
    monkeypatch.setattr(steps, "id_part", lambda text: text)
    with pytest.raises(fuzz.Found, match="same id"):
        fuzz.check(twins)
    monkeypatch.setattr(steps, "id_part", lambda text: text[99])
    with pytest.raises(fuzz.Found, match="IndexError"):
        fuzz.check(text)

    def endless(text: str) -> str:
        raise RulesError("x" * 5000)

    monkeypatch.setattr(steps, "id_part", endless)
    with pytest.raises(fuzz.Found, match="no problem"):
        fuzz.check(text)


def test_the_fuzzer_finds_what_takes_long() -> None:
    with pytest.raises(fuzz.Found, match="it took"):
        fuzz.check(EVERYTHING, longest=0)
