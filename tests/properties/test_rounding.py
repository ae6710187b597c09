"""What a sliding window lets through at most, rounded down and up, for any traffic and clock.

With A the amount, n cells of width w, and any stretch of time that is n - 1 cells and x of
another one: rounded down A + ceil(A * x / w), rounded up A + floor(A * x / w). And in the
long run never more than A a period, however it is rounded.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock import Limit, Limiter, MemoryStore
from penstock.testing import FakeClock

LIMITS = st.builds(
    Limit,
    st.one_of(st.integers(1, 3), st.integers(1, 60), st.just(2**31 - 1)),
    st.sampled_from(["1s", "7ns", "1001ns", "1m", "30d"]),
    algorithm=st.just("sliding_window"),
    cells=st.sampled_from([1, 2, 3, 7]),
    rounding=st.sampled_from(["down", "up"]),
    lockout=st.sampled_from([None, None, None, "1s"]),
    soft=st.sampled_from([None, None, None, (2, "90s")]),
)


def steps(limit: Limit) -> st.SearchStrategy[int]:
    """To the edges of cells and around them, into their middle, and sometimes backwards."""
    width, cells = -(-limit.period_ns // limit.cells), limit.cells
    far = st.sampled_from([0, width, (cells - 1) * width, cells * width, (cells + 1) * width])
    edges = st.builds(lambda distance, off: distance + off, far, st.integers(-2, 2))
    within = st.integers(0, width)
    back = st.integers(-2 * limit.period_ns, 0)
    return st.one_of(edges, edges, edges, edges, within, back)


def costs(limit: Limit) -> st.SearchStrategy[int]:
    """Mostly as much as there is, sometimes more than there can be."""
    return st.one_of(
        st.just(1), st.integers(1, limit.amount), st.just(limit.amount), st.just(limit.amount + 9)
    )


def admitted(data: st.DataObject, limit: Limit) -> list[tuple[int, int]]:
    """(time that went forwards, cost) of each hit that was let through.

    Each step asks for what is left, too, as an adversary would, and opens the cells of a
    new key by a hit that is given back.
    """
    clock = FakeClock(10**18)
    limiter = Limiter(limit, store=MemoryStore(clock=clock))
    limiter.reserve("k").cancel()
    forward, hits = 0, []
    for step, cost in data.draw(
        st.lists(st.tuples(steps(limit), costs(limit)), min_size=5, max_size=40)
    ):
        clock.advance_ns(step)
        forward += max(0, step)
        for units in (cost, limiter.peek("k").remaining):
            if units and limiter.hit("k", cost=units):
                hits.append((forward, units))
    return hits


@given(st.data())
def test_no_stretch_of_time_sees_more_than_its_rounding_states(data: st.DataObject) -> None:
    limit = data.draw(LIMITS)
    hits = admitted(data, limit)
    most = limit.amount + (limit.soft.overrun if limit.soft else 0)
    width = -(-limit.period_ns // limit.cells)
    for first in range(len(hits)):
        units = 0
        for last in range(first, len(hits)):
            units += hits[last][1]
            passed = hits[last][0] - hits[first][0] + 1  # both moments belong to it
            beyond = passed - (limit.cells - 1) * width
            if beyond > width:
                break
            beyond = max(0, beyond)
            up = limit.rounding == "up"
            more = most * beyond // width if up else -(-most * beyond // width)
            assert units <= most + more
            if passed <= limit.period_ns:
                assert units <= (2 * most - 1 if up else 2 * most)


@given(st.data())
def test_in_the_long_run_no_more_than_the_amount_a_period(data: st.DataObject) -> None:
    limit = data.draw(LIMITS)
    hits = admitted(data, limit)
    if not hits:
        return
    most = limit.amount + (limit.soft.overrun if limit.soft else 0)
    periods = (hits[-1][0] - hits[0][0]) // limit.period_ns
    assert sum(units for _, units in hits) <= most * (periods + 2)
