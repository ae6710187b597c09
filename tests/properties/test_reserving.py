"""Reservations for later: whoever acts at the promised time stays within the limit.

Hits act at once. A reservation acts when it is due, or is cancelled at any time, even late. What
all of them did is then compared with the envelope, for every interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from penstock import Limit, Limiter, MemoryStore
from penstock.reservation import Reservation
from penstock.testing import FakeClock
from properties.strategies import limits

START = 10**18
# Verb, nanoseconds that pass before it, cost, which reservation, what was used in the end.
Steps = list[tuple[str, int, int, int, int]]


@dataclass
class Turn:
    """A reservation that was granted, and what becomes of it."""

    reservation: Reservation
    due: int
    cost: int
    used: int
    cancelled: bool = False


def play(limit: Limit, steps: Steps) -> list[tuple[int, int]]:
    """Who acted when, with how many units."""
    clock = FakeClock(START)
    limiter = Limiter(limit, store=MemoryStore(clock=clock))
    acts: list[tuple[int, int]] = []
    turns: list[Turn] = []
    for verb, step, cost, which, used in steps:
        clock.advance_ns(step)
        now = clock.now()
        if verb == "hit":
            decision = limiter.hit("k", cost=cost)
            if decision:
                acts.append((now + decision._delay, cost))
        elif verb == "reserve":
            reservation = limiter.reserve("k", cost=cost, max_delay=float("inf"))
            if reservation:
                due = now + reservation.decision._delay
                turns.append(Turn(reservation, due, cost, cost))
        elif turns:
            turn = turns[which % len(turns)]
            if turn.reservation.settled:
                continue
            if verb == "cancel":
                turn.reservation.cancel()
                turn.cancelled = True
            else:  # before it acts, or after
                turn.used = min(used, turn.cost)
                turn.reservation.settle(turn.used)
    acts += [(turn.due, turn.used) for turn in turns if not turn.cancelled and turn.used]
    return sorted(acts)


def check_envelope(limit: Limit, acts: list[tuple[int, int]]) -> None:
    unit = limit.interval_ns
    for start in range(len(acts)):
        units = 0
        for time, cost in acts[start:]:
            passed = time - acts[start][0]
            if limit.algorithm == "leaky_bucket":  # evenly: each has its own time to itself
                assert units * unit <= passed
                units += cost
            else:
                units += cost
                assert units * unit <= limit.burst * unit + passed


@st.composite
def cases(draw: st.DrawFn) -> tuple[Limit, Steps]:
    limit = draw(limits(("token_bucket", "leaky_bucket"), plain=True))
    unit = max(1, limit.interval_ns)
    passed = st.one_of(
        st.just(0), st.just(unit), st.integers(0, 3 * unit), st.integers(0, 2 * limit.period_ns)
    )
    costs = st.one_of(st.integers(1, 4), st.integers(1, max(1, limit.burst)))
    verbs = st.sampled_from(["hit", "reserve", "reserve", "reserve", "cancel", "settle"])
    step = st.tuples(verbs, passed, costs, st.integers(0, 9), st.integers(0, 5))
    return limit, draw(st.lists(step, min_size=2, max_size=30))


def reserve(cost: int) -> tuple[str, int, int, int, int]:
    return "reserve", 0, cost, 0, 0


def cancel(which: int, step: int = 0) -> tuple[str, int, int, int, int]:
    return "cancel", step, 1, which, 0


@given(cases())
# The ones behind keep their times: what is cancelled before them is not promised again.
@example((Limit.parse("1/second burst 5"), [reserve(1)] * 3 + [cancel(1)] + [reserve(1)] * 3))
@example(
    (
        Limit.parse("1/second burst 5"),
        [reserve(5), reserve(5), cancel(0), reserve(1), cancel(1), reserve(5), reserve(2)],
    )
)
# Settled for less before it is due: it still acts when it is due.
@example(
    (
        Limit.parse("1/second burst 5"),
        [
            reserve(5),
            reserve(5),
            ("settle", 0, 1, 1, 1),
            cancel(0, 10**9),
            ("hit", 4 * 10**9, 5, 0, 0),
        ],
    )
)
@example((Limit.parse("1/second burst 1"), [reserve(1), reserve(1), cancel(0), reserve(1)]))
@example((Limit.parse("1/second leaky_bucket burst 9"), [*[reserve(1)] * 4, cancel(1), reserve(1)]))
def test_all_who_act_when_due_stay_within_the_envelope(case: Any) -> None:
    limit, steps = case
    check_envelope(limit, play(limit, steps))


@given(cases())
def test_who_reserves_later_is_due_later(case: Any) -> None:
    limit, steps = case
    clock = FakeClock(START)
    limiter = Limiter(limit, store=MemoryStore(clock=clock))
    latest = 0
    for _, step, cost, _, _ in steps:
        clock.advance_ns(step)
        reservation = limiter.reserve("k", cost=cost, max_delay=float("inf"))
        if reservation:
            due = clock.now() + reservation.decision._delay
            assert due >= latest
            latest = due


@given(cases(), st.integers(1, 8))
def test_cancelling_the_last_one_undoes_it(case: Any, cost: int) -> None:
    limit, steps = case
    clock = FakeClock(START)
    limiter = Limiter(limit, store=MemoryStore(clock=clock))
    for _, step, before, _, _ in steps:
        clock.advance_ns(step)
        limiter.reserve("k", cost=before, max_delay=float("inf"))
    seen = repr(limiter.peek("k"))
    reservation = limiter.reserve("k", cost=cost, max_delay=float("inf"))
    if reservation:
        reservation.cancel()
    assert repr(limiter.peek("k")) == seen


@given(cases(), st.integers(1, 8), st.one_of(st.just(0), st.integers(0, 10**11)))
def test_a_refused_one_takes_nothing_and_says_when_to_ask_again(
    case: Any, cost: int, patience: int
) -> None:
    limit, steps = case
    clock = FakeClock(START)
    limiter = Limiter(limit, store=MemoryStore(clock=clock))
    counters = limiter.counters(None)
    for _, step, before, _, _ in steps:
        clock.advance_ns(step)
        limiter.reserve("k", cost=before, max_delay=float("inf"))
    seen = repr(limiter.peek("k"))
    refused = counters.reserve("k", cost, patience)
    if refused:
        assert refused._delay <= patience
        return
    assert repr(limiter.peek("k")) == seen
    if refused._retry < 0:
        assert cost > limit.burst
        return
    clock.advance_ns(refused._retry - 1)
    assert not counters.reserve("k", cost, patience)
    clock.advance_ns(1)
    assert counters.reserve("k", cost, patience)
