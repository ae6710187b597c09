"""What a check asks of the store, how that is carried out, and what was taken by it.

A check that is interrupted, cancelled or fails takes nothing in the end: what it had taken
is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.decision import Decision
from penstock.errors import StoreError
from penstock.stores.base import Counters, Store

T = TypeVar("T")
Item = tuple[Counters, str, int]  # counters, key, cost
StoreCall = tuple[str, Counters, tuple[Any, ...]]  # verb, counters, arguments
Take = tuple[Counters, str, int, int]  # counters, key, cost, the decision's mark
# The decisions of each group, and what each single call returned.
Done = tuple[Sequence[Sequence[Decision]], Sequence[Any]]


@dataclass(slots=True)
class Work:
    """For the store: groups of hits, each decided as a whole, and single calls.

    ``waits`` are other checks to wait for first: see `heritage.carry`.
    """

    groups: list[list[Item]] = field(default_factory=list)
    calls: list[StoreCall] = field(default_factory=list)
    waits: Sequence[Future[None]] = ()

    def policies(self) -> tuple[str | None, ...]:
        """The failure policies of all limits concerned."""
        limits = [counters.limit for group in self.groups for counters, _, _ in group]
        limits += [counters.limit for _, counters, _ in self.calls]
        return tuple([limit.on_failure for limit in limits])


class Taken:
    """What was taken and has not been given back."""

    __slots__ = ("_takes",)

    def __init__(self) -> None:
        self._takes: list[Take] = []

    def group(self, items: Sequence[Item], decisions: Sequence[Decision]) -> None:
        """Record a group that was decided as a whole."""
        if all(decisions):
            for (counters, key, cost), decision in zip(items, decisions, strict=True):
                self._takes.append((counters, key, cost, decision._mark))

    def calling(self, call: StoreCall) -> None:
        """Record a refund, in full or in part, of what a decision took. It is under way now."""
        verb, counters, args = call
        if verb != "refund" or len(args) < 3:
            return
        key, cost, mark = args[:3]
        for at, (taker, taken_key, taken, taken_mark) in enumerate(self._takes):
            same = taker is counters and taken_key == key and taken_mark == mark
            if same and taken >= cost:
                del self._takes[at]
                if taken > cost:
                    self._takes.append((counters, key, taken - cost, mark))
                return

    def returned(self, call: StoreCall, answer: Any) -> None:
        """Record what a single call took, now that it has returned."""
        verb, counters, args = call
        if verb in ("hit", "attempt") and answer:
            self._takes.append((counters, args[0], args[1], answer._mark))

    def refunds(self) -> list[StoreCall]:
        """The calls that give everything back. The caller makes them; nothing is kept here."""
        takes = self._pop_all()
        return [("refund", counters, (key, cost, mark)) for counters, key, cost, mark in takes]

    def give_back(self) -> None:
        """Give everything back now."""
        for counters, key, cost, mark in self._pop_all():
            with suppress(StoreError):  # it must not hide the error that led here
                counters.refund(key, cost, mark)

    def give_back_async(self) -> None:
        """Give everything back from a coroutine, without waiting for it."""
        for counters, key, cost, mark in self._pop_all():
            with suppress(StoreError):
                let_finish(counters.submit("refund", key, cost, mark))

    def _pop_all(self) -> list[Take]:
        takes, self._takes = self._takes, []
        return takes


def do_work(store: Store, work: Work, taken: Taken) -> Done:
    """For threads."""
    groups: list[Sequence[Decision]] = []
    answers: list[Any] = []
    try:
        if work.waits:
            wait(work.waits)
        for group in work.groups:
            groups.append(_hit(store, group))
            taken.group(group, groups[-1])
        for call in work.calls:
            verb, counters, args = call
            taken.calling(call)
            answers.append(getattr(counters, verb)(*args))
            taken.returned(call, answers[-1])
    except StoreError as error:
        error.policies = work.policies()
        raise
    return groups, answers


def _hit(store: Store, group: list[Item]) -> Sequence[Decision]:
    if len(group) == 1:
        counters, key, cost = group[0]
        return (counters.hit(key, cost),)
    return store.hit_each(group)


async def do_work_async(store: Store, work: Work, taken: Taken) -> Done:
    """For coroutines. Everything is submitted before the first answer is awaited."""
    pending: list[Awaitable[Any]] = []
    awaited = 0
    groups: list[Sequence[Decision]] = []
    answers: list[Any] = []
    try:
        if work.waits:
            await asyncio.wait([asyncio.wrap_future(future) for future in work.waits])
        for group in work.groups:
            pending.append(_submit(store, group))
        for call in work.calls:
            verb, counters, args = call
            pending.append(counters.submit(verb, *args))
            taken.calling(call)
        for group in work.groups:
            awaited += 1
            decided = await pending[awaited - 1]
            groups.append((decided,) if len(group) == 1 else decided)
            taken.group(group, groups[-1])
        for call in work.calls:
            awaited += 1
            answers.append(await pending[awaited - 1])
            taken.returned(call, answers[-1])
    except BaseException as error:
        for awaitable in pending[awaited:]:
            _drop(awaitable)
        if isinstance(error, StoreError):
            error.policies = work.policies()
        raise
    return groups, answers


def _submit(store: Store, group: list[Item]) -> Awaitable[Any]:
    if len(group) == 1:
        counters, key, cost = group[0]
        return counters.submit("hit", key, cost)
    return store.hit_each_async(group)


def _drop(awaitable: Awaitable[Any]) -> None:
    """Give up a call that was submitted and will not be awaited."""
    if isinstance(awaitable, Coroutine):
        awaitable.close()  # it has not begun
    else:
        awaitable.cancel()  # type: ignore[attr-defined]  # a future, or a store's own kind


_unattended: set[asyncio.Future[Any]] = set()


def let_finish(awaitable: Awaitable[T]) -> asyncio.Future[T]:
    """Run it to its end, even if nobody waits for it."""
    future = asyncio.ensure_future(awaitable)
    _unattended.add(future)  # the loop itself keeps no task alive
    future.add_done_callback(_finished)
    return future


def _finished(future: asyncio.Future[Any]) -> None:
    _unattended.discard(future)
    if not future.cancelled():
        future.exception()  # mark it as seen: nobody waits for it
