"""The policy of the queue a second time, written from the reference page, slowly and plainly.

Lists and sorting, everything worked out anew each time. `WatchedQueue` holds each step of
the real thing against it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from penstock.concurrency.fair_queue import SlotWaiter, Stage
from penstock.concurrency.queue_policy import QueuePolicy
from penstock.concurrency.waiting_queue import WaitingQueue


@dataclass
class Options:
    """As a user gives them; times in nanoseconds."""

    waiting: int = 100
    patience: int = 10 * 10**9
    fair: bool = False
    shares: dict[int, float] | None = None


class NaiveQueue:
    """Who is in, who waits: two lists of waiters."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.inside: list[SlotWaiter] = []
        self.waiting: list[SlotWaiter] = []
        # Of those with one `by`: when they last got a slot, and in which order.
        self.last_slot: dict[Any, tuple[int, int]] = {}

    def may_go_in(self, priority: int, limit: int) -> bool:
        shares = self.options.shares or {}
        named = sorted(other for other in shares if other >= priority)
        return not named or len(self.inside) < math.ceil(Fraction(str(shares[named[0]])) * limit)

    def rank(self, waiter: SlotWaiter) -> tuple[int, int]:
        return waiter.arrived - waiter.priority * self.options.patience, waiter.number

    def next(self, limit: int) -> SlotWaiter | None:
        """Whose turn it is."""
        if len(self.inside) >= limit:
            return None
        priorities = {p.priority for p in self.waiting}
        allowed = {priority for priority in priorities if self.may_go_in(priority, limit)}
        may = sorted((p for p in self.waiting if p.priority in allowed), key=self.rank)
        if not may or not self.options.fair:
            return may[0] if may else None
        firsts = {}
        for waiter in reversed(may):
            firsts[waiter.by] = waiter
        return min(firsts.values(), key=self.turn)

    def turn(self, waiter: SlotWaiter) -> tuple[int, int]:
        """With ``fair``: the group's place in the queue, less priority, more slots held."""
        held = sum(other.by == waiter.by for other in self.inside)
        began = max((waiter.arrived, waiter.number), self.last_slot.get(waiter.by, (0, 0)))
        return began[0] - (waiter.priority - held) * self.options.patience, began[1]

    def one_too_many(self) -> SlotWaiter:
        """Who has to leave the queue."""
        if not self.options.fair:
            return max(self.waiting, key=self.rank)
        groups = {waiter.by for waiter in self.waiting}
        sizes = {by: sum(p.by == by for p in self.waiting) for by in groups}
        longest = [p for p in self.waiting if sizes[p.by] == max(sizes.values())]
        return max(longest, key=self.rank)

    def went_in(self, waiter: SlotWaiter, when: int, number: int) -> None:
        if waiter in self.waiting:
            self.waiting.remove(waiter)
        self.inside.append(waiter)
        self.last_slot[waiter.by] = when, number

    def left(self, waiter: SlotWaiter) -> None:
        for waiters in (self.inside, self.waiting):
            if waiter in waiters:
                waiters.remove(waiter)
        self.forget()

    def forget(self) -> None:
        here = {waiter.by for waiter in (*self.inside, *self.waiting)}
        self.last_slot = {by: when for by, when in self.last_slot.items() if by in here}


def watched_queues(options: Options, seen: list[str] | None = None) -> type[WaitingQueue]:
    """A `WaitingQueue` that asserts at each step that the naive one would do the same."""

    class WatchedQueue(WaitingQueue):
        __slots__ = ("naive", "policy")

        def __init__(self, policy: QueuePolicy) -> None:
            super().__init__(policy)
            self.policy = policy
            self.naive = NaiveQueue(options)

        def admit(self, waiter: SlotWaiter, now: int) -> None:
            limit = self.policy.limit
            if waiter.stage is Stage.WAITING:
                assert self.naive.next(limit) is waiter, "not its turn"
                if seen is not None:
                    seen.append("from the queue")
            else:
                assert self.naive.next(limit) is None, "others are before it"
                assert self.running < limit, "there is no slot"
                assert self.naive.may_go_in(waiter.priority, limit), "there is no slot for it"
            super().admit(waiter, now)
            self.naive.went_in(waiter, self._latest, self._numbers)
            assert len(self.inside) <= limit, "more than may be inside"

        def fill(self, limit: int, now: int) -> list[SlotWaiter]:
            entered = super().fill(limit, now)
            assert self.naive.next(limit) is None, "a slot is free, and somebody waits for it"
            return entered

        def join(self, waiter: SlotWaiter) -> SlotWaiter | None:
            self.naive.waiting.append(waiter)
            pushed = super().join(waiter)
            if len(self.naive.waiting) > options.waiting:
                assert self.naive.one_too_many() is pushed
                self.naive.left(pushed)
                if seen is not None:
                    seen.append("pushed out" if pushed is not waiter else "full")
            else:
                assert pushed is None
            return pushed

        def leave(self, waiter: SlotWaiter) -> bool:
            self.naive.left(waiter)
            had_slot = super().leave(waiter)
            assert self.inside == set(self.naive.inside)
            assert len(self.waiting) == len(self.naive.waiting)
            return had_slot

    return WatchedQueue
