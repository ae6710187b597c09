"""What every algorithm promises, for any limit, any costs and any clock.

The clock may step back. Intervals are therefore measured in time that went
forwards: stepping back and forth must earn nothing.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock import Limit, Limiter, MemoryStore
from penstock.testing import FakeClock
from properties.strategies import costs, limits, steps

START = 10**18


def make(limit: Limit) -> tuple[Limiter, FakeClock]:
    clock = FakeClock(START)
    return Limiter(limit, store=MemoryStore(clock=clock)), clock


def admitted(data: st.DataObject, limit: Limit, most: int = 40) -> list[tuple[int, int]]:
    """Play a random traffic; (forward time, cost) of each hit that was let through."""
    limiter, clock = make(limit)
    forward, hits = 0, []
    for step, cost in data.draw(
        st.lists(st.tuples(steps(limit), costs(limit)), min_size=1, max_size=most)
    ):
        clock.advance_ns(step)
        forward += max(0, step)
        if limiter.hit("k", cost=cost):
            hits.append((forward, cost))
    return hits


def worst(hits: list[tuple[int, int]], length: int) -> int:
    """The most units in any interval of that length, its ends included."""
    return max(
        (sum(c for t, c in hits if start <= t <= start + length) for start, _ in hits), default=0
    )


@given(st.data())
def test_buckets_admit_no_more_than_burst_plus_rate_times_time(data: st.DataObject) -> None:
    limit = data.draw(limits(("token_bucket", "leaky_bucket")))
    hits = admitted(data, limit)
    extra = limit.debt + (limit.soft.overrun if limit.soft else 0)
    for first in range(len(hits)):
        for last in range(first, len(hits)):
            units = sum(cost for _, cost in hits[first : last + 1])
            passed = hits[last][0] - hits[first][0]
            assert units <= limit.burst + extra + passed * limit.amount / limit.period_ns


@given(st.data())
def test_a_log_admits_no_more_than_its_amount_in_any_period(data: st.DataObject) -> None:
    limit = data.draw(limits(("sliding_log",)))
    extra = limit.soft.overrun if limit.soft else 0
    assert worst(admitted(data, limit), limit.period_ns - 1) <= limit.amount + extra


@given(st.data())
def test_a_sliding_window_is_exact_but_for_one_cell(data: st.DataObject) -> None:
    limit = data.draw(limits(("sliding_window",)))
    extra = limit.soft.overrun if limit.soft else 0
    exact = limit.period_ns * (limit.cells - 1) // limit.cells
    assert worst(admitted(data, limit), max(0, exact - 1)) <= limit.amount + extra


@given(st.data())
def test_a_fixed_window_admits_at_most_twice_its_amount_in_a_period(data: st.DataObject) -> None:
    limit = data.draw(limits(("fixed_window",)))
    extra = limit.soft.overrun if limit.soft else 0
    assert worst(admitted(data, limit), limit.period_ns - 1) <= 2 * (limit.amount + extra)


@given(st.data())
def test_retry_after_is_exact(data: st.DataObject) -> None:
    limit = data.draw(limits())
    limiter, clock = make(limit)
    for step, cost in data.draw(st.lists(st.tuples(steps(limit), costs(limit)), max_size=30)):
        clock.advance_ns(step)
        decision = limiter.hit("k", cost=cost)
        if decision.allowed:
            assert decision.retry_after == 0.0
            continue
        if decision._retry < 0:
            assert decision.retry_after is None
            extra = limit.debt + (limit.soft.overrun if limit.soft else 0)
            assert cost > limit.burst + extra
            continue
        back = clock.now()
        clock.advance_ns(decision._retry - 1)
        assert not limiter.peek("k", cost=cost)
        clock.advance_ns(1)
        assert limiter.peek("k", cost=cost)
        clock.set(back)


@given(st.data())
def test_peek_says_what_hit_will_say_and_changes_nothing(data: st.DataObject) -> None:
    limit = data.draw(limits())
    limiter, clock = make(limit)
    for step, cost in data.draw(st.lists(st.tuples(steps(limit), costs(limit)), max_size=30)):
        clock.advance_ns(step)
        seen = limiter.peek("k", cost=cost)
        assert repr(limiter.peek("k", cost=cost)) == repr(seen)
        decision = limiter.hit("k", cost=cost)
        assert decision.allowed == seen.allowed
        assert decision.overrun == seen.overrun
        if limit.lockout_ns == 0 and not limit.count_rejected and limit.soft is None:
            assert decision.retry_after == seen.retry_after


@given(st.data())
def test_refund_never_lifts_above_full(data: st.DataObject) -> None:
    limit = data.draw(limits())
    limiter, clock = make(limit)
    for step, cost, back in data.draw(
        st.lists(st.tuples(steps(limit), costs(limit), st.integers(1, 50)), max_size=30)
    ):
        clock.advance_ns(step)
        # With `initial` a new key has less than a full bucket.
        full = limiter.peek("new").remaining if limit.initial is None else limit.burst
        limiter.hit("k", cost=cost)
        limiter.refund("k", back)
        assert limiter.peek("k").remaining <= full


@given(st.data())
def test_settling_for_less_never_admits_more_than_without_it(data: st.DataObject) -> None:
    """Reserve, wait, give back: in no interval more than burst + rate * time is in use."""
    limit = data.draw(limits(("token_bucket",), plain=True))
    limiter, clock = make(limit)
    forward, kept, open_ = 0, [], []
    for step, cost, settle in data.draw(
        st.lists(
            st.tuples(st.integers(0, limit.period_ns), costs(limit), st.booleans()), max_size=30
        )
    ):
        clock.advance_ns(step)
        forward += step
        if settle and open_:
            open_.pop(0).cancel()
        elif settle:
            reservation = limiter.reserve("k", cost=cost)
            if reservation:
                open_.append(reservation)
        elif limiter.hit("k", cost=cost):
            kept.append((forward, cost))
    for first in range(len(kept)):
        for last in range(first, len(kept)):
            units = sum(cost for _, cost in kept[first : last + 1])
            passed = kept[last][0] - kept[first][0]
            assert units <= limit.burst + passed * limit.amount / limit.period_ns


@given(st.data())
def test_hit_all_takes_nothing_when_one_refuses(data: st.DataObject) -> None:
    several = data.draw(st.lists(limits(plain=True), min_size=1, max_size=4, unique=True))
    limiter, clock = make(several[0])
    for step in data.draw(st.lists(steps(several[0]), max_size=15)):
        clock.advance_ns(step)
        wanted = [(f"k{i}", limit, data.draw(costs(limit))) for i, limit in enumerate(several)]
        fit = [bool(limiter.peek(*item)) for item in wanted]
        before = [limiter.peek(key, limit).remaining for key, limit, _ in wanted]
        decision = limiter.hit_all(wanted)
        after = [limiter.peek(key, limit).remaining for key, limit, _ in wanted]
        assert decision.allowed == all(fit)
        if decision:
            assert all(a < b for a, b in zip(after, before, strict=True))
            assert decision.remaining == min(after)
        else:
            assert after == before
            assert decision.limit in [x for x, fits in zip(several, fit, strict=True) if not fits]
