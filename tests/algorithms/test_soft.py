"""Soft limit: a stated overrun for a stated time, flagged."""

from __future__ import annotations

import pytest

from penstock import Limiter
from penstock.testing import FakeClock

# Windows of a minute; two more than five are let through for a minute and a half.
SOFT = "5/minute fixed_window align first_hit soft 2 for 90s"


def test_the_overrun_is_let_through_until_the_grace_time_ends(replay) -> None:
    replay(
        SOFT,
        [
            (0.0, 5, True, 0),
            (0.0, 1, True, 0),  # the grace time: 0 to 90
            (0.0, 1, True, 0),
            (0.0, 1, False, 60.0),
            (60.0, 7, True, 0),  # a new window, still in the grace time
            (60.0, 1, False, 60.0),
            (120.0, 5, True, 0),
            (120.0, 1, False, 60.0),  # the limit is hard now
            (180.0, 5, True, 0),
            (180.0, 1, False, 60.0),
            # Asked above the limit at 180 for the last time: a new grace time from 270 on.
            (240.0, 5, True, 0),
            (269.999999999, 1, False, 30.000000001),
        ],
    )


def test_a_quiet_grace_time_earns_a_new_one(replay) -> None:
    replay(
        SOFT,
        [
            (0.0, 6, True, 0),  # the grace time: 0 to 90, anew from 180
            (120.0, 5, True, 0),
            (179.0, 1, False, 1.0),  # a new window comes first; asking puts anew to 269
            (240.0, 5, True, 0),
            (268.0, 1, False, 32.0),  # the next window, before the new grace time at 358
            (357.0, 6, False, 90.0),
            (447.0, 6, True, 0),
        ],
    )


def test_overrun_is_flagged_and_only_there(limiter_of) -> None:
    limiter = limiter_of(SOFT)
    seen = [limiter.hit("k") for _ in range(8)]
    assert [d.overrun for d in seen] == [False] * 5 + [True] * 2 + [False]
    assert [d.remaining for d in seen] == [4, 3, 2, 1, 0, 0, 0, 0]
    assert [d.last for d in seen] == [False] * 4 + [True] + [False] * 3


def test_peek_flags_an_overrun_and_starts_no_grace_time(limiter_of, clock) -> None:
    limiter = limiter_of(SOFT)
    limiter.hit("k", cost=5)
    clock.advance(1)
    assert limiter.peek("k").overrun
    clock.advance(58)
    assert limiter.hit("k").overrun
    clock.advance(1 + 60)
    limiter.hit("k", cost=5)
    clock.advance(28)  # the grace time began with the hit at 59, not with the peek
    assert limiter.hit("k").overrun
    clock.advance(1)
    assert not limiter.hit("k")


def test_a_cost_above_the_limit_fits_into_the_overrun(replay) -> None:
    replay(SOFT, [(0.0, 7, True, 0), (60.0, 8, False, None)])


def test_a_percentage_is_of_the_amount(limiter_of) -> None:
    limiter = limiter_of("50/minute fixed_window soft 10% for 10m")
    assert sum(bool(limiter.hit("k")) for _ in range(100)) == 55


def test_a_soft_bucket_owes_its_overrun(replay) -> None:
    # One a second: what was let through beyond the burst must come back first.
    replay(
        "5/5s soft 2 for 10s",
        [
            (0.0, 5, True, 0),
            (0.0, 2, True, 0),
            (0.0, 1, False, 1.0),  # still in the grace time
            (1.0, 1, True, 0),
            (9.0, 5, True, 0),  # eight used and eight come back, and this needs five
            (9.5, 3, False, 2.5),
        ],
    )


def test_grace_is_shared_by_none(limiter_of) -> None:
    limiter = limiter_of(SOFT)
    assert limiter.hit("a", cost=7).overrun
    assert limiter.hit("b", cost=7).overrun


@pytest.mark.parametrize(
    "text",
    [
        "5/5s soft 2 for 3s",
        "5/5s leaky_bucket soft 2 for 20s",
        "5/5s fixed_window soft 2 for 7s",
        "5/5s fixed_window align first_hit soft 1 for 2s",
        "5/5s sliding_window soft 2 for 3s",
        "5/5s sliding_log soft 3 for 9s",
        "5/5s sliding_log soft 3 for 2s lockout 4s",
    ],
)
def test_retry_after_is_exact_in_and_out_of_the_grace_time(limiter_of, clock, text: str) -> None:
    limiter = limiter_of(text)
    most = limiter.default.limit.amount + limiter.default.limit.soft.overrun
    refusals = 0
    for turn in range(60):
        cost = 1 + turn % most
        decision = limiter.hit("k", cost=cost)
        if not decision:
            refusals += 1
            _check_exact(limiter, clock, cost, decision.retry_after)
        clock.advance_ns(170_000_001 * (1 + turn % 13))
    assert refusals > 10


def _check_exact(limiter: Limiter, clock: FakeClock, cost: int, retry: float | None) -> None:
    assert retry is not None
    now = clock.now()
    wait = round(retry * 1e9)
    for earlier in (1, 2, wait // 7, wait // 3, wait // 2, wait - 1):
        clock.set(now + max(0, wait - earlier))
        assert not limiter.peek("k", cost=cost), f"{earlier} ns before the promised time"
    clock.set(now + wait)
    assert limiter.peek("k", cost=cost)
    clock.set(now)


def test_reset_after_lasts_until_a_new_grace_time(limiter_of, clock) -> None:
    limiter = limiter_of(SOFT)
    assert limiter.hit("k", cost=7).reset_after == 180.0
    clock.advance(180)
    assert limiter.peek("k").reset_after == 0.0
    assert limiter.hit("k", cost=7).overrun


def test_refund_and_settlement_keep_the_grace_time(limiter_of, clock) -> None:
    limiter = limiter_of(SOFT)
    limiter.reserve("k", cost=7).settle(3)
    assert limiter.peek("k").remaining == 2
    clock.advance(91)
    limiter.hit("k", cost=5)
    assert not limiter.hit("k")  # the grace time was spent on the reservation
