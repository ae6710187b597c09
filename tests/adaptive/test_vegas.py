"""Vegas by tables."""

from __future__ import annotations

import pytest

from adaptive.traffic import Teller
from penstock.adaptive import Vegas
from penstock.clock import SECOND

# After one quick window of 0.1 s; the limit is 100, so log10 of it is 2, alpha * 2 is 6 and
# beta * 2 is 12.
TABLE = [
    (0.1, 112),  # nobody waits: a large step
    (0.102, 112),  # 100 * (1 - 0.1 / 0.102) = 1.96: two wait
    (0.104, 102),  # four wait: a small step
    (0.106, 100),  # six: as it should be
    (0.112, 100),  # eleven
    (0.115, 98),  # fourteen are too many
    (1.0, 98),
]


def settled(**options: float) -> Teller:
    teller = Teller(Vegas(initial=100, **options))  # type: ignore[arg-type]
    teller.window(0.1, running=1)
    return teller


@pytest.mark.parametrize(("seconds", "limit"), TABLE)
def test_one_window(seconds: float, limit: int) -> None:
    assert settled().window(seconds) == limit


def test_a_drop_is_one_step_down() -> None:
    assert settled().drop() == 98


def test_small_limits_take_steps_of_one() -> None:
    teller = Teller(Vegas(initial=5))
    teller.window(0.1, running=1)
    assert teller.window(0.1) == 11


def test_a_service_that_became_slower_for_good_is_measured_anew() -> None:
    teller = settled(probe_every=5)
    limits = [teller.window(0.3) for _ in range(12)]
    # It takes two thirds of the runs for a queue and shrinks; then it probes, lowers itself to
    # three quarters of the rest for one window, and comes back knowing better.
    probe = next(at for at, limit in enumerate(limits) if limit < 50)
    assert limits[:probe] == sorted(limits[:probe], reverse=True)
    assert limits[probe] == pytest.approx(0.75 * limits[probe - 1] / 3, abs=1.5)
    assert limits[probe + 1] == limits[probe - 1]
    assert limits[probe + 2] > limits[probe + 1]


def test_nothing_is_probed_where_nobody_waits() -> None:
    teller = settled(probe_every=1)
    assert min(teller.window(0.1, running=1) for _ in range(30)) == 100


def test_a_base_is_measured_without_the_runs_that_were_in_the_queue() -> None:
    teller = settled(probe_every=1)
    while teller.strategy.limit > 50:
        teller.window(0.2)
    for _ in range(50):  # they waited in the queue that the probe lets run empty
        teller.strategy.record(SECOND // 2, 90, False, teller.now)
        teller.now += SECOND // 1_000
    for _ in range(20):
        teller.now += SECOND // 10
        teller.strategy.record(SECOND // 10, 30, False, teller.now)
    base = teller.strategy._base / SECOND  # type: ignore[attr-defined]
    assert base == pytest.approx(0.1)
