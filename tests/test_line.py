"""Lines of waiters: order of arrival, and who is called when somebody leaves."""

from __future__ import annotations

import pytest

from penstock.line import Line, Ticket


class Pager(Ticket):
    """A ticket that counts how often it was called."""

    def __init__(self, place: object) -> None:
        super().__init__(place)
        self.calls = 0

    def call(self) -> bool:
        self.calls += 1
        return True


@pytest.fixture
def line() -> Line:
    return Line(Pager)


def test_the_first_to_come_is_first(line: Line) -> None:
    tickets = [line.join("p") for _ in range(3)]
    assert [ticket.first for ticket in tickets] == [True, False, False]
    assert len(line) == 3


def test_each_place_has_its_own_line(line: Line) -> None:
    assert [line.join(place).first for place in ("p", "q", "p")] == [True, True, False]


def test_the_next_one_is_called_when_the_head_leaves(line: Line) -> None:
    head, second, third = (line.join("p") for _ in range(3))
    line.leave(head)
    assert (second.first, second.calls, third.first, third.calls) == (True, 1, False, 0)


def test_nobody_is_called_when_somebody_leaves_the_middle_or_the_end(line: Line) -> None:
    tickets = [line.join("p") for _ in range(4)]
    line.leave(tickets[1])
    line.leave(tickets[3])
    assert [ticket.calls for ticket in tickets] == [0, 0, 0, 0]
    line.leave(tickets[0])
    assert (tickets[2].first, tickets[2].calls) == (True, 1)


def test_a_line_is_gone_with_the_last_of_it(line: Line) -> None:
    tickets = [line.join(place) for place in ("p", "q", "p")]
    for ticket in tickets:
        line.leave(ticket)
    assert len(line) == 0
    assert line._lines == {}
    assert line.join("p").first


def paced(line: Line, *places: tuple[int, int]) -> list[Ticket]:
    tickets = []
    for due, width in places:
        ticket = line.join("p")
        ticket.due, ticket.width = due, width
        tickets.append(ticket)
    return tickets


@pytest.mark.parametrize(
    ("gone", "dues", "calls"),
    [
        (0, [10, 10, 40, 50], [0, 1, 1, 1]),
        (1, [10, 20, 20, 30], [0, 0, 1, 1]),
        (2, [10, 20, 50, 50], [0, 0, 0, 1]),
        (3, [10, 20, 50, 60], [0, 0, 0, 0]),
    ],
)
def test_those_behind_move_up_by_the_width_of_the_gap(
    line: Line, gone: int, dues: list[int], calls: list[int]
) -> None:
    tickets = paced(line, (10, 10), (20, 30), (50, 10), (60, 10))
    assert line.close_gap(tickets[gone], end=70)
    assert [ticket.due for ticket in tickets] == dues
    assert [ticket.calls for ticket in tickets] == calls


@pytest.mark.parametrize("gone", range(3))
def test_nobody_moves_when_somebody_else_is_last(line: Line, gone: int) -> None:
    tickets = paced(line, (10, 10), (20, 10), (30, 10))
    assert not line.close_gap(tickets[gone], end=50)
    assert [ticket.due for ticket in tickets] == [10, 20, 30]
    assert [ticket.calls for ticket in tickets] == [0, 0, 0]


def test_nobody_moves_onto_the_place_of_somebody_else(line: Line) -> None:
    tickets = paced(line, (10, 10), (30, 10))  # from 20 to 30 is not ours
    line.close_gap(tickets[0], end=40)
    assert tickets[1].due == 30


def test_a_thread_that_is_called_finds_itself_first(line: Line) -> None:
    """It may look before the one who called it has done anything more."""
    head, behind = line.join("a"), line.join("a")
    seen: list[bool] = []
    behind.call = lambda: seen.append(behind.first) or True  # type: ignore[method-assign]  # to look
    line.leave(head)
    assert seen == [True]
