"""FairQueue: the order in which waiters get the slots of one key. Pure: no lock, no clock.

Without ``fair`` the order is that of the ranks: see `penstock.concurrency.queue_policy`.

With ``fair``, those with the same ``by`` are one group, and groups take turns::

    since = max(arrival of its first waiter, when it last got a slot)
    order = since - (priority of its first waiter - slots it holds) * patience

After a group gets a slot, its next waiter goes behind all groups that have arrived so far,
and each slot that a group holds lowers its priority by one step. Within a group, the rank
decides.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING

from penstock.concurrency.queue_policy import QueuePolicy

if TYPE_CHECKING:
    from penstock.concurrency.leases import Lease
    from penstock.waiters import Waiter


class Stage(Enum):
    """The stage a waiter has reached."""

    NEW = "has not joined"
    WAITING = "waits in the queue"
    RUNNING = "has a slot"
    PUSHED_OUT = "had to give up its place to another"
    REFUSED = "cannot be let in, as the shared store cannot be asked"
    GONE = "has left"


@dataclass(slots=True, eq=False, repr=False)
class SlotWaiter:
    """A request for a slot of ``key``, from its arrival to the end of its run."""

    key: str
    priority: int = 0
    by: Hashable = None
    may_wait: bool = True
    stage: Stage = Stage.NEW
    arrived: int = 0
    number: int = 0
    order: tuple[int, int] = (0, 0)
    began: int = 0
    beside: int = 0  # how many ran when it began, itself included
    dropped: bool = False
    reason: str = ""  # why it was not let in
    # Wakes the thread or task that waits; None if it never had to wait.
    wakeup: Waiter | None = None
    # Shared slots only: the lease in the store, whether this waiter polls for its queue, and
    # the event loop it waits in (None for a thread).
    lease: Lease | None = None
    asks: bool = False
    home: object = None

    def __repr__(self) -> str:
        return f"<SlotWaiter {self.number} for {self.key!r}: {self.stage.value}>"


_ORDER = attrgetter("order")


@dataclass(slots=True, eq=False)
class Group:
    """The waiters with one ``by``: those in the queue, by priority class, and those inside."""

    lines: list[list[SlotWaiter]]
    waiting: int = 0
    held: int = 0
    since: int = 0
    turn: int = 0

    def first(self, lowest: int) -> SlotWaiter | None:
        """The first by rank among the classes from ``lowest`` up."""
        return min((line[0] for line in self.lines[lowest:] if line), key=_ORDER, default=None)

    def last(self) -> SlotWaiter:
        return max((line[-1] for line in self.lines if line), key=_ORDER)


class FairQueue:
    """The queue of one key."""

    __slots__ = ("_count", "_groups", "_policy")

    def __init__(self, policy: QueuePolicy) -> None:
        self._policy = policy
        self._count = 0
        self._groups: dict[Hashable, Group] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, waiter: SlotWaiter) -> None:
        group = self._group(waiter)
        insort(group.lines[self._policy.class_of(waiter.priority)], waiter, key=_ORDER)
        group.waiting += 1
        self._count += 1

    def remove(self, waiter: SlotWaiter) -> None:
        """Remove the waiter, if it is in the queue."""
        group = self._groups.get(self._by(waiter))
        if group is None:
            return
        line = group.lines[self._policy.class_of(waiter.priority)]
        at = bisect_left(line, waiter.order, key=_ORDER)
        if at < len(line) and line[at] is waiter:
            del line[at]
            group.waiting -= 1
            self._count -= 1
            self._forget(waiter, group)

    def first(self, lowest: int) -> SlotWaiter | None:
        """The next waiter among the classes from ``lowest`` up."""
        best: tuple[tuple[int, int], SlotWaiter] | None = None
        for group in self._groups.values():
            waiter = group.first(lowest)
            if waiter is None:
                continue
            if len(self._groups) == 1:
                return waiter
            turn = self._turn(group, waiter)
            if best is None or turn < best[0]:
                best = turn, waiter
        return best[1] if best else None

    def last(self) -> SlotWaiter:
        """The waiter that has to leave when the queue is too long.

        With ``fair``, it is one of the group with the most waiters.
        """
        _, _, waiter = max(
            ((group.waiting if self._policy.fair else 0, group.last().order, group.last()))
            for group in self._groups.values()
            if group.waiting
        )
        return waiter

    def highest(self) -> int:
        """The highest class in the queue; -1 if the queue is empty."""
        lines: Iterable[list[list[SlotWaiter]]] = (group.lines for group in self._groups.values())
        return max((n for each in lines for n, line in enumerate(each) if line), default=-1)

    def everyone(self) -> list[SlotWaiter]:
        """In the order of their ranks."""
        lines = (line for group in self._groups.values() for line in group.lines)
        return sorted((waiter for line in lines for waiter in line), key=_ORDER)

    # What groups hold -------------------------------------------------------------------

    def got_slot(self, waiter: SlotWaiter, now: int, turn: int) -> None:
        """The waiter runs now; the next of its group goes behind all other groups."""
        if self._policy.fair:
            group = self._group(waiter)
            group.held += 1
            group.since, group.turn = now, turn

    def gave_slot(self, waiter: SlotWaiter) -> None:
        if self._policy.fair:
            group = self._group(waiter)
            group.held -= 1
            self._forget(waiter, group)

    def _turn(self, group: Group, first: SlotWaiter) -> tuple[int, int]:
        waiter = max((first.arrived, first.number), (group.since, group.turn))
        return self._policy.rank(waiter[0], first.priority - group.held), waiter[1]

    def _by(self, waiter: SlotWaiter) -> Hashable:
        return waiter.by if self._policy.fair else None

    def _group(self, waiter: SlotWaiter) -> Group:
        by = self._by(waiter)
        group = self._groups.get(by)
        if group is None:
            group = self._groups[by] = Group([[] for _ in range(self._policy.classes)])
        return group

    def _forget(self, waiter: SlotWaiter, group: Group) -> None:
        if not group.waiting and not group.held:
            del self._groups[self._by(waiter)]
