"""History: rings of counts, against a plain account of every second."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.history import (
    MINUTES,
    REFUSED,
    SECONDS,
    SERIES,
    History,
    Ring,
    Totals,
)

NOTHING = [0] * len(SERIES)
T0 = 1_700_000_000


def counts(allowed: int = 0, refused: int = 0) -> list[int]:
    return [allowed, 0, refused, 0, 0]


def refused(history: History, rule: str, span: int = 5) -> list[int | None]:
    return history.seconds.read(rule, span).counts["refused"]


def test_what_was_counted_is_there_by_second_and_by_minute() -> None:
    history = History()
    for second in range(120):
        history.add(T0 + second, {"api/user": counts(allowed=2, refused=second % 2)})
    series = history.seconds.read("api/user", 4)
    assert (series.start, series.width) == (T0 + 116, 1)
    assert series.counts["refused"] == [0, 1, 0, 1]
    assert series.counts["allowed"] == [2, 2, 2, 2]
    minutes = history.minutes.read("api/user", MINUTES).counts["allowed"]
    assert sum(each or 0 for each in minutes) == 240


def test_a_rule_that_was_never_asked_has_zeros_where_others_were_observed() -> None:
    history = History()
    history.add(T0, {})
    history.add(T0 + 1, {"a": counts(1)})
    assert refused(history, "b", 3) == [None, 0, 0]


def test_a_gap_is_not_a_zero() -> None:
    history = History()
    history.add(T0, {"a": counts(refused=1)})
    history.add(T0 + 3, {"a": counts(refused=2)})
    assert refused(history, "a", 4) == [1, None, None, 2]


def test_old_slots_are_forgotten_after_a_long_gap() -> None:
    history = History()
    history.add(T0, {"a": counts(refused=7)})
    history.add(T0 + 10 * SECONDS, {})
    assert [each for each in refused(history, "a", SECONDS) if each is not None] == [0]


def test_a_clock_that_steps_back_loses_nothing() -> None:
    history = History()
    history.add(T0, {"a": counts(refused=1)})
    history.add(T0 - 100, {"a": counts(refused=1)})
    history.add(T0 + 1, {"a": counts(refused=5)})
    assert refused(history, "a", 2) == [2, 5]


def test_the_rules_are_bounded() -> None:
    history = History(most_rules=2)
    history.add(T0, {name: counts(1) for name in ("a", "b", "c", "d")})
    assert history.seconds.rules == ["a", "b", "other"]
    assert history.seconds.sums("other", 1) == [[2, 0, 0, 0, 0]]
    history.keep(["a"])
    history.add(T0, {"c": counts(1)})
    assert history.seconds.rules == ["a", "other", "c"]


def test_an_episode_begins_after_a_pause() -> None:
    ring = Ring(1, 100)
    for second, count in enumerate([1, 0, 0, 0, 0, 1, 1, 0, 1]):
        ring.advance(T0 + second)
        ring.add("a", counts(refused=count))
    assert ring.since("a", REFUSED, 3) == T0 + 5
    assert ring.since("a", REFUSED, 4) == T0
    assert ring.since("b", REFUSED, 3) is None


def test_counts_do_not_overflow() -> None:
    ring = Ring(1, 3)
    ring.advance(T0)
    for _ in range(3):
        ring.add("a", [2**31, 0, 0, 0, 0])
    assert ring.sums("a", 1) == [[2**32 - 1, 0, 0, 0, 0]]


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.dictionaries(st.sampled_from("ab"), st.integers(0, 9))),
        max_size=30,
    )
)
def test_a_ring_has_what_a_list_of_all_seconds_has(steps: list[tuple[int, dict[str, int]]]) -> None:
    ring, now, account = Ring(1, 20), T0, dict[int, dict[str, int]]()
    for pause, rules in steps:
        now += pause
        ring.advance(now)
        at = account.setdefault(now, {})
        for rule, count in rules.items():
            ring.add(rule, counts(refused=count))
            at[rule] = at.get(rule, 0) + count
    if not steps:
        return
    for rule in "ab":
        wanted = [
            account[at].get(rule, 0) if at in account else None for at in range(now - 19, now + 1)
        ]
        assert ring.read(rule, 20).counts["refused"] == wanted
        parts = [sum(each or 0 for each in wanted[n : n + 5]) for n in range(0, 20, 5)]
        assert [part[REFUSED] for part in ring.sums(rule, 20, 4)] == parts


# On disk ----------------------------------------------------------------------------------


def test_a_dump_brings_everything_back() -> None:
    history = History()
    for second in (0, 1, 5, 700):
        history.add(T0 + second, {"api/\u202e": counts(second, 3), "b": counts(1)})
    copy = History()
    copy.load(history.dump())
    for rule in ("api/\u202e", "b", "c"):
        assert copy.seconds.read(rule, SECONDS) == history.seconds.read(rule, SECONDS)
        assert copy.minutes.read(rule, MINUTES) == history.minutes.read(rule, MINUTES)
    copy.add(T0 + 702, {"b": counts(9)})
    assert copy.seconds.read("b", 3).counts["allowed"] == [1, None, 9]


@pytest.mark.parametrize("cut", [0, 5, 19, 40, -1])
def test_a_damaged_dump_changes_nothing(cut: int) -> None:
    history = History()
    history.add(T0, {"a": counts(1)})
    whole = history.dump()
    with pytest.raises(ValueError, match="it is"):
        history.load(whole[:cut])
    assert history.seconds.sums("a", 1)[0][0] == 1


def test_a_dump_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="of another version"):
        History().load(b"penstock-history 2\n")


# Totals -----------------------------------------------------------------------------------


def test_what_workers_add() -> None:
    totals = Totals()
    assert totals.added("0", {"a": counts(5)}) == {"a": counts(5)}
    assert totals.added("0", {"a": counts(5)}) == {}
    assert totals.added("0", {"a": counts(7, 1), "b": counts(1)}) == {
        "a": counts(2, 1), "b": counts(1)
    }  # fmt: skip
    assert totals.added("1", {"a": counts(3)}) == {"a": counts(3)}
    assert totals.added("0", {"a": counts(2)}) == {"a": counts(2)}, "it was restarted"


def test_what_was_counted_before_is_not_new() -> None:
    totals = Totals()
    totals.begin("0", {"a": counts(5)})
    assert totals.added("0", {"a": counts(6)}) == {"a": counts(1)}
