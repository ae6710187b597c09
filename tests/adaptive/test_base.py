"""What all strategies promise: bounds, clear errors, and the three rules of `base`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock.adaptive
from adaptive.traffic import Teller
from penstock.adaptive import AIMD, AdaptiveLimit, CPUTarget, Gradient2, Vegas
from penstock.clock import SECOND
from penstock.concurrency import Size
from penstock.errors import LimitError


def aimd(**options: Any) -> AdaptiveLimit:
    return AIMD(0.2, chance=random.Random(1).random, **options)


def cpu(**options: Any) -> AdaptiveLimit:
    return CPUTarget(0.7, reader=random.Random(2).random, **options)


KINDS: dict[str, Callable[..., AdaptiveLimit]] = {
    "AIMD": aimd, "Gradient2": Gradient2, "Vegas": Vegas, "CPUTarget": cpu,
}  # fmt: skip
RUNS = st.lists(
    st.tuples(
        st.integers(0, 3 * SECOND),
        st.integers(1, 2_000),
        st.booleans(),
        st.integers(-SECOND, 2 * SECOND),
    ),
    max_size=120,
)


def test_the_public_names_are_these_and_each_says_what_it_is_for() -> None:
    names = ["AIMD", "AdaptiveLimit", "AdaptiveRate", "CPUTarget", "Gradient2", "ProcessCPU",
             "SystemCPU", "Vegas"]  # fmt: skip
    assert penstock.adaptive.__all__ == names
    assert all((getattr(penstock.adaptive, name).__doc__ or "").strip() for name in names)


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_a_size_for_a_concurrency_limiter(kind: str) -> None:
    strategy = KINDS[kind]()
    assert isinstance(strategy, Size)
    assert (strategy.limit, strategy.least, strategy.most) == (20, 1, 1_000)
    assert repr(strategy) == f"<{kind}: 20 of 1 to 1000>"


@pytest.mark.parametrize("kind", KINDS)
@given(least=st.integers(1, 50), width=st.integers(0, 200), runs=RUNS)
def test_whatever_it_is_told_it_stays_within_its_bounds(
    kind: str, least: int, width: int, runs: list[tuple[int, int, bool, int]]
) -> None:
    strategy = KINDS[kind](least=least, most=least + width)
    now = 10 * SECOND
    for duration, running, dropped, passed in runs:
        now = max(0, now + passed)
        strategy.record(duration, running, dropped, now)
        assert type(strategy.limit) is int
        assert least <= strategy.limit <= least + width


@pytest.mark.parametrize("kind", ["AIMD", "Gradient2", "Vegas"])
def test_a_limit_that_is_not_used_does_not_grow(kind: str) -> None:
    teller = Teller(KINDS[kind](initial=40))
    assert {teller.window(0.05, running=19) for _ in range(10)} == {40}
    assert max(teller.window(0.05, running=20) for _ in range(2)) > 40


def test_a_processor_that_is_idle_does_not_let_an_unused_limit_grow() -> None:
    teller = Teller(CPUTarget(0.7, reader=lambda: 0.1, initial=40))
    assert {teller.window(0.05, running=19) for _ in range(10)} == {40}
    assert teller.window(0.05, running=20) == 44


@pytest.mark.parametrize("kind", KINDS)
def test_a_drop_cuts_at_once_and_those_who_were_there_do_not_cut_again(kind: str) -> None:
    teller = Teller(KINDS[kind](initial=40))
    cut = teller.drop(0.1)
    assert cut < 40
    assert [teller.drop(0.1) for _ in range(30)] == [cut] * 30, "they began before the cut"
    teller.now += SECOND
    assert teller.drop(0.1) < cut


@pytest.mark.parametrize("kind", KINDS)
def test_few_runs_are_not_judged(kind: str) -> None:
    strategy = KINDS[kind](initial=40)
    for number in range(9):
        strategy.record(SECOND, 40, False, (100 + 10 * number) * SECOND)
    assert strategy.limit == 40


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_steps_back_stops_nothing(kind: str) -> None:
    strategy = KINDS[kind](initial=40)
    late = Teller(strategy, start=10**6 * SECOND)
    late.drop()
    early = Teller(strategy, start=100 * SECOND)
    before = strategy.limit
    for _ in range(5):
        early.window(0.05)
        early.now += SECOND
    assert strategy.limit != before


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: AIMD(0.2, initial=0), "initial is a whole number from 1"),
    (lambda: AIMD(0.2, least=0), "least is a whole number from 1"),
    (lambda: AIMD(0.2, most=1.5), "most is a whole number"),  # type: ignore[arg-type]
    (lambda: AIMD(0.2, least=10, most=5), "least 10 is above most 5"),
    (lambda: AIMD(0.2, initial=3, least=5), "initial 3 is not from least 5"),
    (lambda: AIMD(0.2, initial=30, most=20), "initial 30 is not from least 1 to most 20"),
    (lambda: AIMD(0.2, window=0), "window must be above zero"),
    (lambda: AIMD("soon"), "target 'soon'"),
    (lambda: AIMD(0), "target must be above zero"),
    (lambda: AIMD(0.2, quantile=1.0), "quantile is a number between 0 and 1, such as 0.99"),
    (lambda: AIMD(0.2, quantile=99), "quantile is a number between 0 and 1"),
    (lambda: AIMD(0.2, backoff=1.0), "backoff is a number between 0 and 1"),
    (lambda: AIMD(0.2, step=0), "step is a whole number of at least 1"),
    (lambda: Gradient2(tolerance=0.9), "tolerance is a number of at least 1"),
    (lambda: Gradient2(queue=0), "queue is a whole number"),
    (lambda: Gradient2(memory=0), "memory is a whole number"),
    (lambda: Gradient2(smoothing=0.0), "smoothing is a number between"),
    (lambda: Vegas(alpha=6, beta=3), "alpha the smaller one"),
    (lambda: Vegas(alpha=0), "alpha and beta are whole numbers"),
    (lambda: Vegas(probe_every=-1), "probe_every must be above zero"),
    (lambda: CPUTarget(70), "target is a number between 0 and 1, such as 0.7 for 70 %"),
    (lambda: CPUTarget(0.7, step=1), "step is a number between"),
    (lambda: CPUTarget(True), "target is a number between"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_wrong_options_are_errors(make: Callable[[], object], message: str) -> None:
    with pytest.raises(LimitError, match=message):
        make()
