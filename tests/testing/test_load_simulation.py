"""The service in virtual time, checked against what queueing theory knows."""

from __future__ import annotations

import pytest

from penstock.adaptive import AIMD, Gradient2
from penstock.clock import SECOND
from penstock.testing.load_simulation import Second, SimulatedService, Unlimited, simulate, value_at


class Fixed:
    """So many at once."""

    def __init__(self, limit: int) -> None:
        self.limit: float = limit
        self.inside = self.most_inside = 0

    def enter(self, number: int, now: int) -> bool:
        if self.inside >= self.limit:
            return False
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        return True

    def leave(self, number: int, duration_ns: int, now: int) -> None:
        self.inside -= 1


def mean(rows: list[Second], name: str) -> float:
    return sum(getattr(row, name) for row in rows) / len(rows)


def test_kept_busy_it_finishes_as_much_as_its_capacity() -> None:
    service = SimulatedService(servers=((0, 20), (10, 5)), run_time=((0, 0.05), (20, 0.1)))
    rows = simulate(Fixed(60), service, ((0, 900),), 30)
    for start, capacity in ((0, 400), (10, 100), (20, 50)):
        part = rows[start + 1 : start + 10]
        assert all(row.capacity == capacity for row in part)
        assert mean(part, "finished") == pytest.approx(capacity, rel=0.05)


@pytest.mark.parametrize("limit", [30, 60, 120])
def test_response_times_grow_with_the_queue_that_is_let_in(limit: int) -> None:
    """Little's law: inside = throughput * response time."""
    admission = Fixed(limit)
    rows = simulate(admission, SimulatedService(), ((0, 900),), 30)[2:]
    assert admission.most_inside == limit
    assert mean(rows, "p50") == pytest.approx(limit / 400, rel=0.1)


def test_far_below_capacity_nobody_waits_or_is_shed() -> None:
    rows = simulate(Fixed(60), SimulatedService(), ((0, 100),), 30)
    assert sum(row.shed for row in rows) == 0
    assert mean(rows, "p50") == pytest.approx(0.047, rel=0.05)  # the median of a lognormal
    assert mean(rows, "offered") == pytest.approx(100, rel=0.1)


def test_without_a_limit_an_overload_grows_without_end() -> None:
    rows = simulate(Unlimited(), SimulatedService(), ((0, 600),), 30)
    assert rows[-1].p50 > 8
    assert all(late.p50 > early.p50 for early, late in zip(rows, rows[5:], strict=False))


def test_nobody_is_lost() -> None:
    admission = Fixed(40)
    rows = simulate(admission, SimulatedService(), ((0, 600), (20, 0.001)), 30)
    assert sum(row.offered - row.shed for row in rows) == sum(row.finished for row in rows)
    assert admission.inside == 0


def test_servers_that_go_away_finish_what_they_had() -> None:
    service = SimulatedService(servers=((0, 20), (5, 1)), run_time=((0, 1.0),))
    rows = simulate(Fixed(20), service, ((0, 100),), 10)
    assert service.busy == 1
    assert rows[5].finished > 10


def test_its_processor_is_as_busy_as_its_servers() -> None:
    service = SimulatedService()
    assert service.cpu() == 0.0
    simulate(Fixed(60), service, ((0, 900),), 10)
    assert service.cpu() == pytest.approx(1.0, abs=0.01)
    service = SimulatedService()
    simulate(Fixed(60), service, ((0, 200),), 10)
    assert service.cpu() == pytest.approx(0.5, abs=0.05)


def test_the_same_seed_is_the_same_run() -> None:
    def run(seed: int) -> list[Second]:
        return simulate(Gradient2(), SimulatedService(), ((0, 600),), 10, seed)

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_each_arrival_is_told_of() -> None:
    seen: list[tuple[int, bool]] = []
    rows = simulate(
        AIMD(0.2),
        SimulatedService(),
        ((0, 600),),
        5,
        seen=lambda number, came: seen.append((number, came)),
    )
    assert [number for number, _ in seen] == list(range(1, len(seen) + 1))
    assert sum(not came for _, came in seen) == sum(row.shed for row in rows)


def test_a_course_holds_until_its_next_step() -> None:
    course = ((0, 20), (30, 10), (60, 15))
    moments = (0, 29.999, 30, 59, 60, 10_000)
    assert [value_at(course, round(at * SECOND)) for at in moments] == [20, 20, 10, 10, 15, 15]
