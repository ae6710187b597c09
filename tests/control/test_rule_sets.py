"""Sets of rules in a key-value store, and gates that follow it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Gate, RevisionConflict, RulesError, StoreError
from penstock.control import rule_sets
from penstock.control.steps import run
from penstock.control.switch_entries import clearing_command, clears, command_of, key_of, value_of
from penstock.kv import KeyValue
from penstock.rules.deciding import switches
from penstock.testing import FakeClock
from stores.redis_server import wait_until

ONE = {"api.yaml": b"domain: api\ndescriptors: [{key: user, limits: 2/hour}]\n"}
TWO = {"api.yaml": b"domain: api\ndescriptors: [{key: user, limits: 4/hour}]\n"}


@pytest.fixture
def kv() -> Iterator[KeyValue]:
    with KeyValue("memory:", who="test") as kv:
        yield kv


def test_a_set_is_read_back(kv: KeyValue) -> None:
    large = {f"{n}.yaml": bytes(str(n) * 30_000, "ascii") + n.to_bytes(4) for n in range(20)}
    pushed = run(kv, rule_sets.push(large, summary="all new", who="ana", why="first"))
    assert (pushed.number, pushed.files, pushed.who, pushed.why) == (1, 20, "ana", "first")
    assert run(kv, rule_sets.fetch(pushed)) == large
    assert run(kv, rule_sets.current()) == pushed


def test_of_two_pushes_one_is_told(kv: KeyValue) -> None:
    first = run(kv, rule_sets.push(ONE))
    run(kv, rule_sets.push(TWO, expect=first.revision))
    with pytest.raises(RevisionConflict):
        run(kv, rule_sets.push(ONE, expect=first.revision))
    current = run(kv, rule_sets.current())
    assert current is not None
    assert run(kv, rule_sets.fetch(current)) == TWO


def test_the_last_sets_are_kept(kv: KeyValue) -> None:
    for n in range(rule_sets.MOST_SETS + 5):
        run(kv, rule_sets.push({"a.yaml": str(n).encode()}))
    history = run(kv, rule_sets.history())
    assert [info.number for info in history] == list(range(55, 5, -1))
    assert run(kv, rule_sets.fetch(history[-1])) == {"a.yaml": b"5"}
    with pytest.raises(StoreError, match="no set of rules 2: the store has 6 to 55"):
        run(kv, rule_sets.find(2))


def test_a_damaged_set_is_an_error(kv: KeyValue) -> None:
    pushed = run(kv, rule_sets.push(ONE))
    piece = next(entry for entry in kv.list(rule_sets.FILES) if pushed.digest not in entry.key)
    kv.put(piece.key, b"not it")
    with pytest.raises(StoreError, match="damaged"):
        run(kv, rule_sets.fetch(pushed))
    kv.delete(piece.key)
    with pytest.raises(StoreError, match="missing"):
        run(kv, rule_sets.fetch(pushed))
    kv.put(rule_sets.CURRENT, "{}")
    with pytest.raises(StoreError, match="is no set of rules"):
        run(kv, rule_sets.current())


def test_rules_of_a_store_do_not_read_files(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("10.0.0.1\n")
    text = f"domain: api\ndeny: {{ip: {{file: {tmp_path / 'list'}}}}}\ndescriptors: []\n"
    with pytest.raises(RulesError):
        rule_sets.rules_of({"api.yaml": text.encode()})


@pytest.mark.parametrize(
    "command",
    [
        {"do": "mode", "mode": "off", "name": None},
        {"do": "mode", "mode": "shadow", "name": "api/user"},
        {"do": "override", "key": "user", "value": "42", "factor": 10, "limit": None},
        {"do": "override", "key": "user", "value": "x" * 5000, "factor": None, "limit": "1/s"},
        {"do": "override", "key": "user", "value": "a\nb", "factor": 2, "limit": None},
        {"do": "list", "which": "deny", "key": "ip", "entry": "192.0.2.0/24"},
    ],
    ids=range(6),
)
def test_commands_are_entries(kv: KeyValue, command: dict[str, object]) -> None:
    assert not clears(command)
    entry = kv.put(key_of(command), value_of(command))
    back = command_of(entry, entry.at)
    back.pop("held", None)
    assert back == command
    assert key_of(clearing_command(command)) == entry.key
    assert clears(clearing_command(command))


# Gates -------------------------------------------------------------------------------------


def test_a_gate_follows_a_store(kv: KeyValue) -> None:
    with pytest.raises(RulesError, match="memory has no rules: use penstock rules push"):
        Gate.from_store(kv)
    run(kv, rule_sets.push(ONE))
    override = {"do": "override", "key": "user", "value": "42", "factor": 3, "limit": None}
    kv.put(key_of(override), value_of(override))
    gate = Gate.from_store(kv, clock=FakeClock())
    try:
        assert sum(bool(gate.check({"user": "42"})) for _ in range(10)) == 6
        assert sum(bool(gate.check({"user": "7"})) for _ in range(10)) == 2
        before = gate.rules
        run(kv, rule_sets.push(TWO))
        wait_until(lambda: gate.rules is not before, "the new rules", 20)
        assert sum(bool(gate.check({"user": "8"})) for _ in range(10)) == 4
        before = gate.rules
        run(kv, rule_sets.push({"api.yaml": b"domain: [\n"}))
        kv.delete(key_of(override))
        wait_until(lambda: gate.switches.calm, "the override removed", 20)
        assert gate.rules is before
    finally:
        gate.close()
    run(kv, rule_sets.push(ONE))
    assert gate.rules is before


def _copies_at_start(count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How often switches are copied and rules are compiled for a gate with so many overrides."""
    copies, compiled = [], []
    draft, replace = switches.Draft.__init__, Gate.replace
    with KeyValue("memory:") as kv, monkeypatch.context() as patch:
        run(kv, rule_sets.push(ONE))
        for n in range(count):
            command = {"do": "override", "key": "user", "value": str(n), "factor": 2.0}
            kv.put(key_of(command), value_of(command))
        patch.setattr(
            switches.Draft,
            "__init__",
            lambda self, state: (copies.append(1), draft(self, state))[1],
        )
        patch.setattr(
            Gate, "replace", lambda self, rules: (compiled.append(1), replace(self, rules))[1]
        )
        gate = Gate.from_store(kv)
        assert len(gate.switches.state().overrides) == count
        gate.close()
    return len(copies), len(compiled)


def test_many_overrides_cost_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (_copies_at_start(count, monkeypatch) for count in (10, 1000))
    assert few == many == (1, 0)
