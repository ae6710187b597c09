"""The arithmetic over arrivals equals brute force, and the algorithms themselves."""

from __future__ import annotations

import math
from array import array
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Limit, Limiter, MemoryStore
from penstock.replay.recommending import arrivals
from penstock.testing import FakeClock

SECOND = 1_000_000_000
gaps = st.lists(st.sampled_from([0, 1, 3, 10, 100, 1_000, 5_000]), min_size=1, max_size=40)
traces = st.lists(
    gaps.map(lambda each: [sum(each[: n + 1]) for n in range(len(each))]), min_size=1, max_size=4
)


def grouped(keys: list[list[int]]) -> tuple[array[int], array[int]]:
    """By way of the sort: events of all keys in the order of time."""
    events = sorted((time, key) for key, times in enumerate(keys) for time in times)
    starts, out = array("q", [0] * (len(keys) + 1)), array("q", [0] * len(events))
    arrivals.group_by_key(
        array("i", [key for _, key in events]), array("q", [time for time, _ in events]),
        len(events), len(keys), starts, out,
    )  # fmt: skip
    for key, times in enumerate(keys):
        assert list(out[starts[key] : starts[key + 1]]) == times
    return starts, out


def per_key(function: Any, keys: list[list[int]], *arguments: int) -> list[int]:
    starts, times = grouped(keys)
    out = array("q", [0] * len(keys))
    function(starts, times, *arguments, out)
    return list(out)


def refusals(times: list[int], limit: Limit) -> int:
    clock = FakeClock(SECOND)
    limiter = Limiter(limit, store=MemoryStore(clock=clock))
    refused = 0
    for time in times:
        clock.set(SECOND + time)
        refused += not limiter.hit("key")
    return refused


def limit_of(interval: int, burst: int) -> Limit:
    return Limit(1, f"{interval}ns", burst=burst)


@settings(max_examples=80, deadline=None)
@given(traces, st.integers(1, 3_000))
def test_most_in_a_window(keys: list[list[int]], window: int) -> None:
    expected = [
        max(sum(1 for other in times if time <= other < time + window) for time in times)
        for times in keys
    ]
    assert per_key(arrivals.most_in_window, keys, window) == expected
    for times, most in zip(keys, expected, strict=True):
        log = Limit(most, f"{window}ns", algorithm="sliding_log")
        assert refusals(times, log) == 0
        if most > 1:
            assert refusals(times, Limit(most - 1, f"{window}ns", algorithm="sliding_log")) > 0


@settings(max_examples=80, deadline=None)
@given(traces, st.integers(1, 3_000))
def test_the_smallest_burst(keys: list[list[int]], interval: int) -> None:
    bursts = per_key(arrivals.bursts_at, keys, interval)
    for times, burst in zip(keys, bursts, strict=True):
        assert refusals(times, limit_of(interval, burst)) == 0
        if burst > 1:
            assert refusals(times, limit_of(interval, burst - 1)) > 0


@settings(max_examples=80, deadline=None)
@given(traces, st.integers(1, 3_000), st.integers(1, 5))
def test_refusals_are_those_of_the_algorithms(
    keys: list[list[int]], interval: int, burst: int
) -> None:
    shifted = [[SECOND + time for time in times] for times in keys]
    expected = [refusals(times, limit_of(interval, burst)) for times in keys]
    assert per_key(arrivals.refused_by_bucket, shifted, interval, burst) == expected
    starts, times = grouped(shifted)
    out = array("q", [0] * len(times))
    assert arrivals.refused_times(starts, times, interval, burst, out) == sum(expected)
    log = Limit(burst, f"{interval}ns", algorithm="sliding_log")
    counted = array("q", [0] * len(keys))
    arrivals.refused_by_log(starts, times, interval, burst, array("q", [0] * len(times)), counted)
    assert list(counted) == [refusals(each, log) for each in keys]


@settings(max_examples=150, deadline=None)
@given(gaps, st.integers(1, 20_000))
def test_the_frontier_is_exact(between: list[int], interval: int) -> None:
    """Rate against burst by its definition: the shortest span of k requests, for each k."""
    times = [sum(between[: n + 1]) for n in range(len(between))]
    n = len(times)
    brute = max(
        k - Fraction(min(times[at + k - 1] - times[at] for at in range(n - k + 1)), interval)
        for k in range(1, n + 1)
    )
    assert per_key(arrivals.bursts_at, [times], interval) == [math.ceil(brute)]
