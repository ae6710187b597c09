"""A sliding window rounds its estimate down or up: what each admits, and what it costs."""

from __future__ import annotations

import pytest

from penstock import Decision, Limit, Limiter

SECOND = 10**9
MINUTE = 60 * SECOND
# What can be had at most in any one minute, by an adversary who knows where the cells lie.
MOST = {"down": lambda amount: 2 * amount, "up": lambda amount: 2 * amount - 1}


def six_and_a_half(limiter: Limiter, clock) -> None:
    """5 in the last minute, 3 in this one, 30 % into it."""
    limiter.hit("k", cost=5)
    clock.advance(60)
    limiter.hit("k", cost=2)
    clock.advance(18)
    limiter.hit("k", cost=1)


def attack(limiter: Limiter, clock, cells: int) -> list[int]:
    """Everything just before the first cell ends, then each unit as soon as it is to be had.

    A reservation that is cancelled opens the cells and leaves them empty.
    """
    amount, start, width = limiter.default.limit.amount, clock.now(), -(-MINUTE // cells)
    limiter.reserve("k").cancel()
    clock.set(start + width - 1)
    taken = [clock.now() for _ in range(amount) if limiter.hit("k")]
    while clock.now() < start + width - 1 + MINUTE:
        decision = limiter.hit("k")
        if decision:
            taken.append(clock.now())
        else:
            clock.advance_ns(decision._retry)
    return [at for at in taken if at < taken[0] + MINUTE]


@pytest.mark.parametrize("cells", [1, 2, 7, 10, 60])
@pytest.mark.parametrize("amount", [1, 2, 5, 100])
@pytest.mark.parametrize("rounding", ["down", "up"])
def test_an_adversary_gets_what_is_stated_and_no_more(
    limiter_of, clock, rounding: str, amount: int, cells: int
) -> None:
    limiter = limiter_of(f"{amount}/minute sliding_window cells {cells} rounding {rounding}")
    taken = attack(limiter, clock, cells)
    assert len(taken) == MOST[rounding](amount)
    # Nothing beyond the amount until a minute less one cell has passed.
    early = [at for at in taken if at <= taken[0] + MINUTE - -(-MINUTE // cells)]
    assert len(early) == amount


@pytest.mark.parametrize("cells", [1, 5, 10, 60])
@pytest.mark.parametrize("amount", [1, 2, 5, 10])
def test_rounded_down_a_client_that_waits_as_told_gets_the_whole_limit(
    limiter_of, clock, amount: int, cells: int
) -> None:
    limiter = limiter_of(f"{amount}/minute sliding_window cells {cells}")
    taken, start = 0, clock.now()
    while clock.now() < start + 100 * MINUTE:
        decision = limiter.hit("k")
        if decision:
            taken += 1
        else:
            clock.advance_ns(decision._retry)
    assert taken == pytest.approx(100 * amount, abs=amount)


def test_rounded_up_one_cell_gives_such_a_client_half_of_one_a_minute(limiter_of, clock) -> None:
    limiter = limiter_of("1/minute sliding_window cells 1 rounding up")
    assert limiter.hit("k")
    assert limiter.hit("k").retry_after == 120.0
    limiter = limiter_of("1/minute sliding_window cells 1 rounding down")
    assert limiter.hit("k")
    assert limiter.hit("k").retry_after == 60.000000001


def test_rounded_up_one_a_minute_is_never_two_in_any_minute(limiter_of, clock) -> None:
    """The hit lies at the end of its cell: there, rounding down lets the next in a cell early."""
    waits = {}
    for rounding in ("down", "up"):
        limiter = limiter_of(f"1/minute sliding_window rounding {rounding}")
        limiter.reserve("k").cancel()
        clock.advance_ns(6 * SECOND - 1)
        assert limiter.hit("k")
        waits[rounding] = limiter.hit("k")._retry
    assert waits == {"down": 54 * SECOND + 2, "up": 60 * SECOND + 1}


def test_lockout_begins_where_the_rounding_refuses(limiter_of, clock) -> None:
    up = limiter_of("7/minute sliding_window cells 1 rounding up lockout 15m")
    six_and_a_half(up, clock)
    assert up.hit("k").retry_after == 900.0
    down = limiter_of("7/minute sliding_window cells 1 rounding down lockout 15m")
    six_and_a_half(down, clock)
    assert down.hit("k")
    assert down.hit("k").retry_after == 900.0


def test_a_soft_limit_is_overrun_where_the_rounding_says(limiter_of, clock) -> None:
    def seen(rounding: str) -> list[tuple[bool, bool]]:
        limiter = limiter_of(f"7/minute sliding_window cells 1 rounding {rounding} soft 1 for 10m")
        six_and_a_half(limiter, clock)
        hits: list[Decision] = [limiter.hit("k") for _ in range(3)]
        return [(hit.allowed, hit.overrun) for hit in hits]

    assert seen("down") == [(True, False), (True, True), (False, False)]
    assert seen("up") == [(True, True), (False, False), (False, False)]


@pytest.mark.parametrize(("rounding", "left"), [("down", 1), ("up", 0)])
def test_refund_charge_and_reset_round_alike(limiter_of, clock, rounding: str, left: int) -> None:
    limiter = limiter_of(f"7/minute sliding_window cells 1 rounding {rounding}")
    six_and_a_half(limiter, clock)
    assert limiter.peek("k").remaining == left
    limiter.refund("k", 2)
    assert limiter.peek("k").remaining == left + 2
    limiter.reserve("k", cost=1).settle(3)  # a hit of 1 and a charge of 2
    assert limiter.peek("k").remaining == max(0, left - 1)
    limiter.refund("k", 50)
    limiter.reserve("k", cost=7).cancel()
    assert limiter.peek("k").remaining == 7
    limiter.reset("k")
    assert limiter.hit("k", cost=7).last


def test_rounding_is_a_part_of_the_limit(limiter_of) -> None:
    """Its promise holds for what it let through itself: so it has counters of its own."""
    down = Limit.parse("3/minute sliding_window")
    up = down.changed(rounding="up")
    assert down != up
    assert down.counted_as != up.counted_as
    assert str(up.changed(amount=9, cells=2)) == "9/minute sliding_window cells 2 rounding up"
    assert up.changed(rounding=None) == up.changed(rounding="down") == down
    limiter = limiter_of(down)
    assert limiter.hit("k", cost=3)
    assert limiter.hit("k", up, cost=3)
    assert not limiter.hit("k", down)


def test_a_clock_that_steps_back_earns_nothing_rounded_down(replay) -> None:
    replay(
        "7/minute sliding_window cells 1 rounding down",
        [
            (100_000.0, 7, True, 0),
            (50.0, 1, False, 60.000000001),
            (50.0 + 60, 1, False, 1e-9),
            (50.0 + 60 + 1, 1, True, 0),
            (50.0 + 60, 1, False, pytest.approx(60 / 7)),
            (50.0, 1, False, pytest.approx(60 / 7)),
        ],
    )
