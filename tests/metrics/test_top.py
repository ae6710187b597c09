"""The space-saving sketch keeps its promises, alone and added up."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.top import Top, load, merge

KEYS = st.integers(0, 30)
STREAMS = st.lists(KEYS, max_size=400)
# A few keys come often, the others seldom: what a sketch is for.
SKEWED = st.lists(st.one_of(st.integers(0, 2), KEYS), max_size=400)


def counted(stream: list[int], capacity: int) -> Top[int]:
    top: Top[int] = Top(capacity)
    for key in stream:
        top.add(key)
    return top


def check_promises(top: Top[int], stream: list[int], capacity: int) -> None:
    true, n = Counter(stream), len(stream)
    counted = {each.key: each for each in top.most()}
    assert top.total == n
    assert len(counted) == len(top) <= capacity
    for key, times in true.items():
        if times * capacity > n:
            assert key in counted, "a key with more than n/k is missing"
        if key not in counted:
            assert times <= top.least
    for key, each in counted.items():
        assert each.count - each.error <= true[key] <= each.count
        assert each.error * capacity <= n
    counts = [each.count for each in top.most()]
    assert counts == sorted(counts, reverse=True)


@given(st.one_of(STREAMS, SKEWED), st.integers(1, 12))
def test_every_frequent_key_is_here_and_errors_are_bounded(
    stream: list[int], capacity: int
) -> None:
    check_promises(counted(stream, capacity), stream, capacity)


@given(st.lists(st.one_of(STREAMS, SKEWED), min_size=1, max_size=4), st.integers(1, 12))
def test_sums_keep_the_same_promises(streams: list[list[int]], capacity: int) -> None:
    whole = [key for stream in streams for key in stream]
    at_once = merge([counted(stream, capacity) for stream in streams])
    check_promises(at_once, whole, capacity)
    one_by_one = counted(streams[0], capacity)
    for stream in streams[1:]:
        one_by_one = merge([one_by_one, counted(stream, capacity)])
    check_promises(one_by_one, whole, capacity)


@given(STREAMS, STREAMS, st.integers(1, 12))
def test_a_sum_can_be_counted_on(first: list[int], then: list[int], capacity: int) -> None:
    top = merge([counted(first, capacity)])
    for key in then:
        top.add(key)
    check_promises(top, first + then, capacity)


def test_with_room_for_all_it_is_exact() -> None:
    top = counted([1, 2, 1, 3, 1, 2], 10)
    assert [(each.key, each.count, each.error) for each in top.most()] == [
        (1, 3, 0), (2, 2, 0), (3, 1, 0),
    ]  # fmt: skip
    assert [each.key for each in top.most(1)] == [1]


def test_the_smallest_makes_room() -> None:
    top = counted([1, 1, 2, 3], 2)
    assert [(each.key, each.count, each.error) for each in top.most()] == [(1, 2, 0), (3, 2, 1)]


def test_an_empty_one_changes_nothing() -> None:
    top = counted(list(range(1500)), 2000)
    assert merge([Top(10), top]).most() == top.most()


def test_memory_is_bounded_whatever_comes() -> None:
    top = counted(list(range(50_000)), 100)
    assert len(top) == len(top._heap) == 100


def test_it_travels_as_json() -> None:
    top: Top[tuple[str, ...]] = Top(3)
    for key in "abcabda":
        top.add(("rule", key))
    there = load(json.loads(json.dumps(top.dump())))
    assert there.most() == top.most()
    assert (there.total, there.capacity, there.least) == (top.total, top.capacity, top.least)


@pytest.mark.parametrize("capacity", [0, -1, 1.5, "ten", True])
def test_a_capacity_that_makes_no_sense(capacity: object) -> None:
    with pytest.raises(ValueError, match="capacity must be a whole number"):
        Top(capacity)  # type: ignore[arg-type]  # that is the point
