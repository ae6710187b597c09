"""Switches.batch: many changes that are in force together, as if made one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Gate
from penstock.rules.deciding.switches import Changes, Switches
from penstock.testing import FakeClock

USERS = st.sampled_from("abc")
LASTS = st.sampled_from([None, "1s", "1h"])
EDITS = st.one_of(
    st.tuples(
        st.just("mode"), st.sampled_from(["shadow", "off", "enforce"]), st.none() | USERS, LASTS
    ),
    st.tuples(st.just("clear_mode"), USERS),
    st.tuples(st.just("override"), st.just("user"), USERS, st.integers(1, 9), LASTS),
    st.tuples(st.just("clear_override"), st.just("user"), USERS),
    st.tuples(st.sampled_from(["allow", "deny"]), USERS, USERS, LASTS),
    st.tuples(st.just("clear_list"), st.sampled_from(["allow", "deny"]), USERS, USERS),
)


def make(changes: Changes, edit: tuple[Any, ...]) -> None:
    verb, *arguments = edit
    if verb == "override":
        key, value, factor, lasts = arguments
        changes.override(key, value, factor=factor, lasts=lasts)
    else:
        getattr(changes, verb)(*arguments)


def parts(switches: Switches) -> tuple[Any, ...]:
    state = switches.state()
    lists = state.allow_lists.keys(), state.deny_lists.keys()
    return (state.mode, state.lasting_mode, state.modes, state.mode_ends, state.overrides,
            state.allow, state.deny, state.next_end, lists, switches.calm)  # fmt: skip


@given(st.lists(EDITS, max_size=20), st.lists(EDITS, max_size=20))
def test_a_batch_is_its_changes_one_by_one(
    before: list[tuple[Any, ...]], edits: list[tuple[Any, ...]]
) -> None:
    clock = FakeClock()
    single, batched = Switches(clock), Switches(clock)
    for edit in before:
        make(single, edit)
        make(batched, edit)
    clock.advance(2)
    for edit in edits:
        make(single, edit)
    seen = batched.last
    with batched.batch() as batch:
        for edit in edits:
            make(batch, edit)
        assert batched.last is seen, "nothing is in force before the end"
    assert parts(single) == parts(batched)


def test_a_state_in_use_never_changes() -> None:
    switches = Switches(FakeClock())
    switches.allow("ip", "192.0.2.1")
    switches.mode("off", "a")
    switches.override("user", "1", factor=2)
    state = switches.last
    copy = dict(state.modes), dict(state.overrides), {k: dict(v) for k, v in state.allow.items()}
    with switches.batch() as batch:
        batch.allow("ip", "192.0.2.2")
        batch.clear_mode("a")
        batch.clear_override("user", "1")
    assert (state.modes, state.overrides, state.allow) == copy


def test_it_is_told_once_and_all_or_nothing() -> None:
    told = []
    switches = Switches(FakeClock(), changed=lambda: told.append(1))
    with switches.batch() as batch:
        for user in range(100):
            batch.override("user", str(user), factor=2)
    assert (len(told), len(switches.state().overrides)) == (1, 100)
    with switches.batch():
        pass

    def fail() -> None:
        with switches.batch() as batch:
            batch.mode("off")
            batch.mode("of")

    with pytest.raises(ValueError, match="a mode is one of"):
        fail()
    assert (len(told), switches.state().mode) == (1, "enforce")


def test_a_mode_ends_by_itself() -> None:
    clock = FakeClock()
    gate = Gate.from_rules("domain: api\ndescriptors: [{key: user, limits: 1/hour}]\n", clock=clock)

    def allowed() -> bool:
        return gate.check({"user": "1"}).allowed

    assert allowed()
    assert not allowed()
    gate.switches.mode("off", lasts="10s")
    gate.switches.mode("shadow", "api/user", "5s")
    assert allowed()
    assert gate.switches.state().modes == {"api/user": "shadow"}
    clock.advance(5)
    assert gate.switches.state().modes == {}
    assert allowed(), "off for all"
    clock.advance(5)
    assert not allowed()
    assert gate.switches.calm


def test_the_lasting_mode_comes_back() -> None:
    clock = FakeClock()
    switches = Switches(clock)
    switches.mode("shadow")
    switches.mode("enforce", lasts="10s")
    clock.advance(9)
    assert switches.state().mode == "enforce"
    clock.advance(1)
    assert switches.state().mode == "shadow"
    switches.mode("off", lasts="10s")
    switches.mode("enforce")
    clock.advance(11)
    assert switches.state().mode == "enforce"
