"""Large rules do not make the garbage collector stall decisions."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("yaml")

from penstock.async_gate import AsyncGate
from penstock.rules.model import RuleSet
from penstock.rules.reading.parse import load_texts
from penstock.running import collector


@pytest.fixture(autouse=True)
def collector_as_before() -> Iterator[None]:
    gc.collect()
    yield
    gc.unfreeze()
    assert gc.isenabled()


def rules(count: int, amount: int = 5) -> RuleSet:
    rule = "  - {{key: path, value: /p/{}, limits: {}/minute}}\n"
    text = "".join(rule.format(number, amount) for number in range(count))
    return load_texts({"api.yaml": f"domain: api\ndescriptors:\n{text}".encode()})


def test_nothing_is_collected_while_large_rules_are_put_in_force() -> None:
    full: list[int] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2:
            full.append(info["generation"])

    gate = AsyncGate(RuleSet({}))
    gc.callbacks.append(note)
    try:
        with collector.paused():
            new = rules(5_000)
        with collector.paused():
            prepared = gate.prepare(new)
        with collector.paused():
            gate.swap(prepared)
    finally:
        gc.callbacks.remove(note)
    assert full == []


def test_what_many_objects_are_is_not_looked_at_again() -> None:
    with collector.paused():
        many = [[] for _ in range(collector.MANY + 1)]  # type: ignore[var-annotated]
    assert gc.get_freeze_count() > len(many)
    assert gc.isenabled()


def test_few_objects_are_collected_as_usual() -> None:
    with collector.paused():
        few = [[] for _ in range(100)]  # type: ignore[var-annotated]
    assert few
    assert gc.get_freeze_count() == 0


def test_pauses_may_be_nested_and_fail() -> None:
    with collector.paused():
        with pytest.raises(ValueError, match="no"), collector.paused():
            raise ValueError("no")
        assert not gc.isenabled()
    assert gc.isenabled()


def test_rules_that_are_replaced_are_freed_without_the_collector() -> None:
    """Otherwise they would stay in memory, as nothing looks at them again."""
    gate = AsyncGate(rules(100))
    gc.collect()
    gc.disable()
    try:
        old = weakref.ref(gate.compiled)
        gate.replace(rules(100, amount=6))
        assert old() is None
        assert gc.collect() == 0
    finally:
        gc.enable()
