"""Queues of waiters: order of arrival, and who is woken when somebody leaves."""

from __future__ import annotations

import pytest

from penstock.waiters import Waiter, WaiterQueues


class Pager(Waiter):
    """A waiter that counts how often it was woken."""

    def __init__(self, key: object) -> None:
        super().__init__(key)
        self.wakes = 0

    def wake(self) -> bool:
        self.wakes += 1
        return True


@pytest.fixture
def queues() -> WaiterQueues:
    return WaiterQueues(Pager)


def test_the_first_to_come_is_first(queues: WaiterQueues) -> None:
    waiters = [queues.join("p") for _ in range(3)]
    assert [waiter.first for waiter in waiters] == [True, False, False]
    assert len(queues) == 3


def test_each_key_has_its_own_queue(queues: WaiterQueues) -> None:
    assert [queues.join(key).first for key in ("p", "q", "p")] == [True, True, False]


def test_the_next_one_is_woken_when_the_head_leaves(queues: WaiterQueues) -> None:
    head, second, third = (queues.join("p") for _ in range(3))
    queues.leave(head)
    assert (second.first, second.wakes, third.first, third.wakes) == (True, 1, False, 0)


def test_nobody_is_woken_when_somebody_leaves_the_middle_or_the_end(queues: WaiterQueues) -> None:
    waiters = [queues.join("p") for _ in range(4)]
    queues.leave(waiters[1])
    queues.leave(waiters[3])
    assert [waiter.wakes for waiter in waiters] == [0, 0, 0, 0]
    queues.leave(waiters[0])
    assert (waiters[2].first, waiters[2].wakes) == (True, 1)


def test_a_queue_is_gone_with_its_last_waiter(queues: WaiterQueues) -> None:
    waiters = [queues.join(key) for key in ("p", "q", "p")]
    for waiter in waiters:
        queues.leave(waiter)
    assert len(queues) == 0
    assert queues._queues == {}
    assert queues.join("p").first


def paced(queues: WaiterQueues, *places: tuple[int, int]) -> list[Waiter]:
    waiters = []
    for due, width in places:
        waiter = queues.join("p")
        waiter.due, waiter.width = due, width
        waiters.append(waiter)
    return waiters


@pytest.mark.parametrize(
    ("gone", "dues", "wakes"),
    [
        (0, [10, 10, 40, 50], [0, 1, 1, 1]),
        (1, [10, 20, 20, 30], [0, 0, 1, 1]),
        (2, [10, 20, 50, 50], [0, 0, 0, 1]),
        (3, [10, 20, 50, 60], [0, 0, 0, 0]),
    ],
)
def test_those_behind_move_up_by_the_width_of_the_gap(
    queues: WaiterQueues, gone: int, dues: list[int], wakes: list[int]
) -> None:
    waiters = paced(queues, (10, 10), (20, 30), (50, 10), (60, 10))
    assert queues.close_gap(waiters[gone], end=70)
    assert [waiter.due for waiter in waiters] == dues
    assert [waiter.wakes for waiter in waiters] == wakes


@pytest.mark.parametrize("gone", range(3))
def test_nobody_moves_when_somebody_else_is_last(queues: WaiterQueues, gone: int) -> None:
    waiters = paced(queues, (10, 10), (20, 10), (30, 10))
    assert not queues.close_gap(waiters[gone], end=50)
    assert [waiter.due for waiter in waiters] == [10, 20, 30]
    assert [waiter.wakes for waiter in waiters] == [0, 0, 0]


def test_nobody_moves_onto_the_place_of_somebody_else(queues: WaiterQueues) -> None:
    waiters = paced(queues, (10, 10), (30, 10))  # from 20 to 30 is not ours
    queues.close_gap(waiters[0], end=40)
    assert waiters[1].due == 30


def test_a_thread_that_is_woken_finds_itself_first(queues: WaiterQueues) -> None:
    """It may look before the one who woke it has done anything more."""
    head, behind = queues.join("a"), queues.join("a")
    seen: list[bool] = []
    behind.wake = lambda: seen.append(behind.first) or True  # type: ignore[method-assign]  # to look
    queues.leave(head)
    assert seen == [True]
