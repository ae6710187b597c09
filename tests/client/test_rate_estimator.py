"""The rate estimator: tables of its functions, and what it does with fifty clients."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.hint_headers import crowd
from penstock.client.fields import ServerHints, Standing
from penstock.client.pacer import Pacer
from penstock.client.rate_estimator import Blind, Policy, looks_like, rate, steady, used
from penstock.client.retries import Retries
from penstock.clock import SECOND


def policy(remaining: int, reset: float | None, quota: int | None = 100, window: float | None = 60):
    return Standing("p", remaining, reset, quota, window)


@pytest.mark.parametrize(
    ("standing", "kind"),
    [
        (policy(50, 30), "bucket"),  # 50 of 100 are missing: half of the time
        (policy(99, 1), "bucket"),
        (policy(10, 54), "bucket"),
        (policy(0, 1), "bucket"),  # when there will be one
        (policy(0, 60), "bucket"),
        (policy(50, 10), "window"),
        (policy(99, 59), "window"),
        (policy(0, 20), "window"),
        (policy(50, 60), "slide"),
        (policy(20, 65), "slide"),
        (policy(50, 30, None), "window"),
        (policy(50, 30, 100, None), "window"),
        (policy(50, None), "window"),
    ],
)
def test_what_an_answer_looks_like(standing: Standing, kind: str) -> None:
    assert looks_like(standing) == kind


@pytest.mark.parametrize(
    ("kind", "standing", "under_way", "share", "expected"),
    [
        # plenty: more than half after one more of everybody (at most a quarter)
        ("window", policy(99, 60), 0, 1.0, math.inf),
        ("window", policy(52, 60), 0, 1.0, math.inf),
        ("window", policy(51, 60.5), 0, 1.0, 51 / 60),
        ("window", policy(60, 60.5), 9, 1.0, 51 / 60),
        ("window", policy(75, 60.5), 0, 0.01, 0.01**0.85 * 75 / 60),
        ("window", policy(76, 60.5), 0, 0.01, math.inf),
        # a window: what is left until its end
        ("window", policy(10, 20.5), 0, 1.0, 0.5),
        ("window", policy(10, 20.5), 5, 1.0, 0.25),
        ("window", policy(10, 20.5), 0, 0.1, 0.1**0.85 * 0.5),
        ("window", policy(0, 20), 0, 1.0, 0.0),
        ("window", policy(3, 20), 3, 1.0, 0.0),
        ("window", policy(1, 60.5), 0, 1e-9, 1 / 240),
        # a bucket: at its own rate when it is half full
        ("bucket", policy(50, 30), 0, 1.0, 100 / 60),
        ("bucket", policy(25, 45), 0, 1.0, 50 / 60),
        ("bucket", policy(0, 1), 0, 1.0, 100 / 16 * 2 / 60),
        # a sliding window: at its own rate with a quarter left
        ("slide", policy(25, 60), 0, 1.0, 100 / 60),
        # what was not said
        ("window", policy(5, None, None, None), 0, 1.0, math.inf),
        ("window", policy(5, None, None, 10.5), 0, 1.0, 0.5),
    ],
)
def test_the_rate(
    kind: str, standing: Standing, under_way: int, share: float, expected: float
) -> None:
    assert rate(kind, standing, under_way, share, 1.0) == pytest.approx(expected)
    halved = rate(kind, standing, under_way, share, 0.5)
    assert halved == pytest.approx(expected / 2 if expected < math.inf else expected)


@pytest.mark.parametrize(
    ("kind", "before", "now", "elapsed", "ours", "expected"),
    [
        ("window", policy(50, 30), policy(40, 20), 10, 10, 10),
        ("window", policy(50, 30, None, None), policy(40, 20, None, None), 10, 10, 10),
        ("window", policy(5, 3), policy(90, 55), 8, 8, 10),  # since the new one began
        ("window", policy(5, 3), policy(90, 55), 128, 128, 210),  # two were passed over
        ("window", policy(5, 3), policy(90, 55), 128, 0, 10),  # as we had nothing to ask
        ("window", policy(50, 30), policy(45, 30), 10, 10, 5),  # too early for a new one
        ("window", policy(5, 3, None, None), policy(9, 55, None, None), 8, 8, None),
        ("window", policy(9, None, None, None), policy(5, None, None, None), 8, 8, 4),
        ("window", policy(5, None, None, None), policy(9, None, None, None), 8, 8, None),
        ("bucket", policy(50, 30), policy(50, 30), 6, 6, 10),
        ("bucket", policy(50, 30), policy(55, 27), 6, 6, 5),
        ("bucket", policy(50, 30), policy(48, 31), 6, 0, 2),
    ],
)
def test_what_everybody_used(
    kind: str, before: Standing, now: Standing, elapsed: float, ours: float, expected: float | None
) -> None:
    assert used(kind, before, now, elapsed, ours) == expected


def test_the_share_is_what_of_all_was_ours() -> None:
    learned = Policy(policy(50, 60), 0.0)
    for turn in range(40):  # four others call as often as we do
        learned.learn(policy(500 - 5 * turn, 60 - turn, 1000), float(turn), float(turn), True)
    assert learned.share == pytest.approx(1 / 5, rel=0.01)
    for turn in range(40, 70):
        learned.learn(policy(300 - (turn - 40), 60 - turn, 1000), float(turn), float(turn), True)
    assert learned.share == pytest.approx(1.0, rel=0.05)


def test_answers_that_overtake_each_other() -> None:
    """Of calls that were under way together, the one with the least left counts."""
    learned = Policy(policy(90, 6), 0.0)
    left = []
    for remaining, now, sent in [(80, 1.0, 0.5), (70, 1.1, 0.5), (79, 1.2, 0.5), (75, 1.3, 1.15)]:
        learned.learn(policy(remaining, 6), now, sent, True)
        left.append(learned.standing.remaining)
    assert left == [80, 70, 70, 75]


@pytest.mark.parametrize(("others", "alone"), [(0, True), (1, False)])
def test_a_bucket_that_nobody_else_uses_is_used_further(others: int, alone: bool) -> None:
    learned = Policy(policy(100, 0), 0.0)
    for turn in range(1, 10):
        assert turn > 3 or not learned.alone, "a few answers are needed to tell"
        remaining = 50 - turn * (1 + others)
        learned.learn(policy(remaining, (100 - remaining) * 0.6), turn / 1e3, turn / 1e3, True)
    assert learned.alone is alone
    quarter = policy(25, 45)
    assert rate("bucket", quarter, 0, 1.0, 1.0, alone=True) == math.inf
    assert rate("bucket", policy(12, 53), 0, 1.0, 1.0, alone=True) == pytest.approx(1.6)
    assert rate("bucket", quarter, 0, 1.0, 1.0) < 1


def test_a_refusal_halves_and_passing_gives_back() -> None:
    learned = Policy(policy(10, 20), 0.0)
    for expected in (0.5, 0.25, 0.125):
        learned.refused()
        assert learned.caution == expected
    for _ in range(20):
        learned.learn(policy(10, 20), 1.0, 1.0, True)
    assert learned.caution == 1.0
    for _ in range(20):
        learned.refused()
    assert learned.caution == 1 / 64


@pytest.mark.parametrize(
    ("standing", "now", "luck", "due"),
    [
        (policy(10, 20.5), 0.0, 0.5, 2.0),
        (policy(10, 20.5), 0.0, 0.0, 1.0),
        (policy(10, 20.5), 0.0, 1.0, 3.0),
        (policy(0, 20), 0.0, 0.0, 20.0),
        (policy(0, 20), 0.0, 1.0, 20.6),  # a little later by chance: our interval at most
        (policy(0, 20), 25.0, 0.5, 20.3),
        (policy(1, 60), 0.0, 0.5, 59.5),
        (policy(1, 59.9), 70.0, 0.5, 0.6),  # it has ended: what comes back in the long run
        (policy(0, 20, None, None), 0.0, 1.0, 20.0),
    ],
)
def test_when_the_next_call_is_due(standing: Standing, now: float, luck: float, due: float) -> None:
    assert Policy(standing, 0.0).due(now, 0.0, 0, luck) == pytest.approx(due)


@given(
    st.builds(
        Standing, st.just("p"), st.integers(0, 10**6), st.none() | st.floats(0, 10**6),
        st.none() | st.integers(1, 10**6), st.none() | st.floats(1, 10**6),
    ),
    st.sampled_from(["window", "bucket", "slide"]),
    st.integers(0, 1000), st.floats(1e-9, 1), st.floats(1 / 64, 1),
)  # fmt: skip
def test_the_rate_is_never_nonsense(
    standing: Standing, kind: str, under_way: int, share: float, caution: float
) -> None:
    calls_a_second = rate(kind, standing, under_way, share, caution)
    assert calls_a_second >= 0
    assert rate(kind, standing, under_way + 1, share, caution) <= calls_a_second
    assert steady(standing, share, caution) > 0


_standings = st.builds(
    Standing, st.just("p"), st.integers(0, 30), st.none() | st.integers(0, 70).map(float),
    st.none() | st.integers(1, 30), st.none() | st.integers(1, 60).map(float),
)  # fmt: skip


@given(
    st.lists(
        st.tuples(_standings, st.sampled_from(["pass", "refuse", "blind"]), st.integers(0, 200)),
        max_size=30,
    ),
    st.floats(0, 1),
    st.integers(0, 5),
)
def test_no_answers_make_the_pace_fail(
    answers: list[tuple[Standing, str, int]], luck: float, others: int
) -> None:
    pace, now = Pacer(0, True, lambda: luck, Retries()), 0
    for _ in range(others):
        pace.leaves(now)
    for standing, how, seconds in answers:
        assert pace.due(now) >= now
        pace.leaves(now)
        now += seconds * SECOND // 10
        if how == "pass":
            pace.passed(now, now, ServerHints(None, (standing,)))
        else:
            standings = () if how == "blind" else (standing,)
            pace.refused(now, now - 1, ServerHints(float(seconds), standings))
            assert seconds == 0 or pace.gate >= now + seconds * SECOND
    # A month, and chance: no pace keeps anybody away for longer.
    assert pace.due(now) <= now + 64 * 4 * 2 * 3600 * SECOND
    assert pace.under_way == others


def test_shares_that_add_up_give_rates_that_add_up() -> None:
    """The point of the estimate, but for the exponent: nobody has to know how many there are."""
    standing = policy(40, 20.5)
    for shares in ([1.0], [0.5, 0.5], [0.7, 0.2, 0.1], [0.02] * 50):
        together = sum(rate("window", standing, 0, share, 1.0) for share in shares)
        assert 2.0 <= together <= 2.0 * len(shares) ** 0.15 + 1e-9


def test_where_nothing_is_said_refusals_must_do() -> None:
    blind = Blind(0.0)
    for _ in range(100):
        blind.passed()
    assert blind.rate == math.inf
    blind.refused(9.0, 1.0)  # a hundred passed in ten seconds
    assert blind.rate == pytest.approx(7.0)
    blind.passed()
    assert blind.rate == pytest.approx(7.035)
    blind.refused(10.0, 0.5)
    blind.refused(10.5, 0.5)
    assert blind.rate < 2.0
    for _ in range(5000):
        blind.refused(11.0, 0.5)
    assert blind.rate == 1 / 3600, "once in an hour it may try"
    for _ in range(100):
        blind.passed()
    assert 0.9 < blind.rate < 2.0, "back to the rate that passed, and then slowly"


def test_calls_that_were_refused_together_count_once() -> None:
    pace = Pacer(0, True, lambda: 0.0, Retries())
    standing = ServerHints(1.0, (policy(0, 1),))
    for _ in range(5):
        pace.leaves(0)
    for _ in range(5):
        pace.refused(SECOND, 0, standing)
    assert pace._policies["p"].caution == 0.5
    assert pace.under_way == 0
    pace.leaves(3 * SECOND)
    pace.refused(4 * SECOND, 3 * SECOND, standing)
    assert pace._policies["p"].caution == 0.25


def test_a_gate_does_not_open_for_all_at_once() -> None:
    opened = []
    for chance in (0.0, 0.5, 1.0):
        pace = Pacer(0, True, lambda chance=chance: chance, Retries())
        for now in (0, 2 * SECOND):
            pace.leaves(now)
            pace.passed(now, now, ServerHints(None, (policy(10, 20.5),)))
        pace.leaves(4 * SECOND)
        pace.refused(4 * SECOND, 4 * SECOND, ServerHints(5.0))
        opened.append(pace.gate / SECOND)
    assert opened[0] == 9.0, "never too early"
    assert opened[0] < opened[1] < opened[2] <= 14.0, "within our interval, and what was asked for"


def test_the_strictest_policy_counts() -> None:
    pace = Pacer(0, True, lambda: 0.5, Retries())
    pace.leaves(0)
    loose, tight = policy(40, 20.5), Standing("day", 2, 100.5, 1000, 86_400.0)
    pace.passed(0, 0, ServerHints(None, (loose, tight)))
    assert pace.due(0) == 50 * SECOND
    pace.leaves(50 * SECOND)
    pace.passed(
        50 * SECOND,
        50 * SECOND,
        ServerHints(None, (policy(99, 60), Standing("day", 1, 50.5, 1000))),
    )
    assert pace.due(50 * SECOND) == 100 * SECOND
    pace.leaves(101 * SECOND)
    pace.passed(
        101 * SECOND,
        101 * SECOND,
        ServerHints(None, (policy(99, 60), Standing("day", 999, 80_000, 1000))),
    )
    assert pace.due(101 * SECOND) == 101 * SECOND


# A crowd on a virtual clock: exact, as chance has a seed. The ideal has all of a burst at the
# start, and the whole of the last window at its first moment; polite clients have neither.
CROWDS = [
    # limit, clients, calls each, at most so many times the ideal, refused after three seconds
    ("100/second", 50, 40, 1.10, 0),
    ("100/second", 1, 1000, 1.15, 0),
    ("300/minute", 25, 60, 1.16, 0),
    ("100/second burst 10", 50, 20, 1.25, 10),
    ("20/second", 50, 10, 1.50, 25),
    ("300/minute fixed_window", 25, 48, 1.45, 25),
    ("500/minute sliding_log", 25, 60, 1.85, 28),
]


@pytest.mark.parametrize(("limit", "clients", "each", "times", "refused"), CROWDS)
async def test_clients_that_do_not_know_each_other(
    limit: str, clients: int, each: int, times: float, refused: int
) -> None:
    report = await crowd(limit, clients, each, seed=1)
    print(report)
    assert report.seconds <= times * report.ideal, str(report)
    assert report.refused(after=3) <= refused, str(report)
    assert report.refused() <= 2.5 * clients, "each learns from about one or two"
    assert len(report.tries) == report.calls
    assert sum(tries.count for tries in report.tries) == len(report.hits)


@pytest.mark.parametrize("seed", range(2, 5))
async def test_that_was_no_luck(seed: int) -> None:
    report = await crowd("50/second", 25, 16, seed)
    assert report.seconds <= 1.2 * report.ideal, str(report)
    assert report.refused() == 0, str(report)
