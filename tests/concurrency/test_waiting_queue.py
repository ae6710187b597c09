"""The order of the queue: tables, and every step against a second implementation."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from concurrency.naive import Options, watched_queues
from penstock.concurrency import HIGH, LOW, NORMAL
from penstock.concurrency.fair_queue import SlotWaiter, Stage
from penstock.concurrency.queue_policy import QueuePolicy
from penstock.concurrency.waiting_queue import WaitingQueue

SECOND = 10**9


def served(
    arrivals: list[tuple[float, int, Any]], *, waiting: int = 100, **options: Any
) -> tuple[list[int], list[int]]:
    """One slot, taken until all have come, then handed on each second.

    Each arrival is (seconds, priority, by). Who was served, in order; who was turned away.
    """
    policy = QueuePolicy(1, waiting, **options)
    queue, names, refused = WaitingQueue(policy), {}, []
    running = SlotWaiter("k", by="somebody else")
    queue.arrive(running, 0)
    queue.admit(running, 0)
    for name, (when, priority, by) in enumerate(arrivals):
        waiter = SlotWaiter("k", priority, by)
        names[waiter] = name
        queue.arrive(waiter, round(when * SECOND))
        pushed = queue.join(waiter)
        if pushed is not None:
            refused.append(names[pushed])
    now, order = round(arrivals[-1][0] * SECOND), []
    while running is not None:
        now += SECOND
        queue.leave(running)
        entered = queue.fill(1, now)
        assert len(entered) <= 1
        running = entered[0] if entered else None
        order += [names[waiter] for waiter in entered]
    assert queue.is_empty
    assert queue.waiting._groups == {}, "somebody who has gone is remembered"
    return order, refused


@pytest.mark.parametrize(
    ("arrivals", "order"),
    [
        # In order of arrival; ties too.
        ([(0, 0, ""), (1, 0, ""), (1, 0, ""), (2, 0, "")], [0, 1, 2, 3]),
        # Priority goes first, and is worth ten seconds.
        ([(0, LOW, ""), (0, NORMAL, ""), (0, HIGH, "")], [2, 1, 0]),
        ([(0, NORMAL, ""), (9, HIGH, ""), (10, HIGH, ""), (11, HIGH, "")], [1, 0, 2, 3]),
        ([(0, LOW, ""), (19, HIGH, ""), (20, HIGH, ""), (21, HIGH, "")], [1, 0, 2, 3]),
        ([(0, LOW, ""), (5, NORMAL, ""), (15, NORMAL, "")], [1, 0, 2]),
        # Any whole number is a priority.
        ([(0, 3, ""), (29, 6, ""), (31, 6, ""), (31, 7, "")], [3, 1, 0, 2]),
        # A clock that is set back lets nobody go before.
        ([(50, 0, ""), (10, 0, ""), (10, HIGH, "")], [2, 0, 1]),
    ],
)
def test_the_order_of_the_line(arrivals: list[tuple[float, int, Any]], order: list[int]) -> None:
    assert served(arrivals, patience=10) == (order, [])


@pytest.mark.parametrize(
    ("arrivals", "order", "refused"),
    [
        # The last to come goes, at equal priority.
        ([(0, 0, ""), (1, 0, ""), (2, 0, "")], [0, 1], [2]),
        # Who ranks before somebody pushes out the last.
        ([(0, 0, ""), (1, 0, ""), (2, HIGH, "")], [2, 0], [1]),
        ([(0, LOW, ""), (1, HIGH, ""), (2, 0, "")], [1, 2], [0]),
        # Age counts here too: the old one stays.
        ([(0, LOW, ""), (15, 0, ""), (16, 0, "")], [0, 1], [2]),
    ],
)
def test_a_full_line(
    arrivals: list[tuple[float, int, Any]], order: list[int], refused: list[int]
) -> None:
    assert served(arrivals, waiting=2, patience=10) == (order, refused)


@pytest.mark.parametrize(
    ("arrivals", "order"),
    [
        # Two take turns, whoever came with more.
        ([(0, 0, "a"), (0, 0, "a"), (0, 0, "a"), (1, 0, "b"), (1, 0, "b")], [0, 3, 1, 4, 2]),
        # Who comes anew stands behind all who are there: one at a time gains nothing.
        ([(0, 0, "a"), (0, 0, "b"), (0, 0, "a"), (0, 0, "b"), (1, 0, "c")], [0, 1, 4, 2, 3]),
        # Priority counts between groups and within one.
        ([(0, 0, "a"), (0, HIGH, "a"), (0, 0, "b"), (0, HIGH, "b")], [1, 3, 0, 2]),
        ([(0, LOW, "a"), (1, 0, "b"), (1, 0, "b")], [1, 2, 0]),
        # Nobody's own.
        ([(0, 0, None), (0, 0, None), (1, 0, "b")], [0, 2, 1]),
    ],
)
def test_a_fair_line(arrivals: list[tuple[float, int, Any]], order: list[int]) -> None:
    assert served(arrivals, patience=10, fair=True) == (order, [])


def test_in_a_fair_line_the_one_with_the_most_places_loses_its_last() -> None:
    crowd = [(0, 0, "a")] * 4
    assert served([*crowd, (1, 0, "b"), (1, 0, "b"), (1, 0, "b")], waiting=4, fair=True) == (
        [0, 4, 1, 5],
        [3, 2, 6],
    )


def test_slots_that_are_held_count_against_their_holder() -> None:
    policy, queue = QueuePolicy(4, 10, patience=10, fair=True), None
    queue = WaitingQueue(policy)
    for _ in range(4):
        waiter = SlotWaiter("k", by="a")
        queue.arrive(waiter, 0)
        queue.admit(waiter, 0)
    waiting = [
        SlotWaiter("k", by="a"),
        SlotWaiter("k", by="b"),
        SlotWaiter("k", by="b"),
        SlotWaiter("k", by="b"),
    ]
    for waiter in waiting:
        queue.arrive(waiter, 5 * SECOND)
        assert queue.join(waiter) is None
    order = []
    for waiter in [p for p in queue.inside if p.by == "a"]:
        queue.leave(waiter)
        order += queue.fill(4, 6 * SECOND)
    assert [waiting.index(waiter) for waiter in order] == [1, 2, 0, 3]


@pytest.mark.parametrize(
    ("shares", "limit", "expected"),
    [
        (None, 10, {LOW: 10, NORMAL: 10, HIGH: 10}),
        ({LOW: 0.5, NORMAL: 0.9}, 10, {-7: 5, LOW: 5, NORMAL: 9, HIGH: 10, 9: 10}),
        ({LOW: 0.5, NORMAL: 0.9}, 1, {LOW: 1, NORMAL: 1, HIGH: 1}),
        ({LOW: 0.1}, 30, {LOW: 3, NORMAL: 30}),  # 0.1 is a tenth and not a little more
        ({NORMAL: 0.34}, 3, {LOW: 2, NORMAL: 2, HIGH: 3}),
        ({5: 0.5}, 4, {HIGH: 2, 5: 2, 6: 4}),
    ],
)
def test_shares(shares: dict[int, float] | None, limit: int, expected: dict[int, int]) -> None:
    policy = QueuePolicy(limit, shares=shares)
    for priority, most in expected.items():
        queue, entered = WaitingQueue(policy), 0
        while True:
            waiter = SlotWaiter("k", priority)
            queue.arrive(waiter, 0)
            if not queue.may_enter(waiter, queue.running, limit):
                break
            queue.admit(waiter, 0)
            entered += 1
        assert (priority, entered) == (priority, most)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), min_size=6, max_size=60),
    st.integers(1, 4),
)
def test_a_turn_goes_to_the_party_that_holds_the_fewest_slots(
    arrivals: list[tuple[int, str]], limit: int
) -> None:
    """As long as nobody waits longer than the patience, which is the bound on unfairness."""
    queue, now = WaitingQueue(QueuePolicy(limit, 1000, patience=3600, fair=True)), 0
    for step, by in arrivals:
        now += step * SECOND
        waiter = SlotWaiter("k", by=by)
        queue.arrive(waiter, now)
        if queue.may_enter(waiter, queue.running, limit):
            queue.admit(waiter, now)
        else:
            queue.join(waiter)
    while queue.inside:
        now += SECOND
        queue.leave(min(queue.inside, key=lambda waiter: waiter.number))
        held = Counter(waiter.by for waiter in queue.inside)
        groups = {waiter.by for waiter in queue.waiting.everyone()}
        entered = queue.fill(limit, now)
        if entered:
            assert held[entered[0].by] == min(held[by] for by in groups)


class FairQueue(RuleBasedStateMachine):
    """Anything that may happen to a queue, against the naive one: see `watched_queues`."""

    class Moving:
        limit = 1

        def record(self, *_: Any) -> None:
            raise AssertionError("a queue records nothing")

    @initialize(
        limit=st.integers(1, 4),
        waiting=st.integers(1, 6),
        patience=st.integers(1, 5),
        fair=st.booleans(),
        shares=st.sampled_from([None, {LOW: 0.5}, {LOW: 0.3, NORMAL: 0.7}]),
    )
    def begin(
        self, limit: int, waiting: int, patience: int, fair: bool, shares: dict[int, float] | None
    ) -> None:
        self.size = self.Moving()
        self.size.limit = limit
        self.policy = QueuePolicy(self.size, waiting, f"{patience}ns", fair, shares)
        self.seen: list[str] = []
        options = Options(waiting, patience, fair, shares)
        self.queue = watched_queues(options, self.seen)(self.policy)
        self.now = 0
        self.here: list[SlotWaiter] = []

    @rule(
        passed=st.integers(0, 3), priority=st.integers(-2, 2), by=st.sampled_from(["a", "b", None])
    )
    def come(self, passed: int, priority: int, by: str | None) -> None:
        self.now += passed
        waiter = SlotWaiter("k", priority, by)
        self.queue.arrive(waiter, self.now)
        self.queue.fill(self.policy.limit, self.now)
        if self.queue.may_enter(waiter, self.queue.running, self.policy.limit):
            self.queue.admit(waiter, self.now)
        else:
            self.queue.join(waiter)
        self.here = [p for p in (*self.here, waiter) if p.stage in (Stage.WAITING, Stage.RUNNING)]

    @precondition(lambda self: self.here)
    @rule(passed=st.integers(0, 3), which=st.randoms(use_true_random=False))
    def go(self, passed: int, which: Any) -> None:
        self.now += passed
        waiter = self.here.pop(which.randrange(len(self.here)))
        self.queue.leave(waiter)
        self.queue.leave(waiter)  # twice is once
        self.queue.fill(self.policy.limit, self.now)

    @rule(limit=st.integers(-1, 6))
    def change_size(self, limit: int) -> None:
        """Growing lets in more, shrinking pushes nobody out; below 1 there is always one."""
        self.size.limit = limit
        inside = self.queue.running
        entered = self.queue.fill(self.policy.limit, self.now)
        assert self.queue.running == inside + len(entered)

    @invariant()
    def nobody_is_lost(self) -> None:
        if hasattr(self, "queue"):
            assert {*self.queue.inside, *self.queue.waiting.everyone()} == set(self.here)

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            for waiter in self.here:
                self.queue.leave(waiter)
            assert self.queue.is_empty
            assert self.queue.waiting._groups == {}


TestLine = FairQueue.TestCase
