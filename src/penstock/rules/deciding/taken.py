"""Does the work of a check in a store, and knows what it took.

A check whose caller is interrupted, cancelled or told of an error has taken nothing in the
end: what it took is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from concurrent.futures import wait
from contextlib import suppress
from typing import Any

from penstock.decision import Decision
from penstock.errors import StoreError
from penstock.rules.deciding.work import Done, Item, Single, Work
from penstock.stores.base import Counters, Store

# Counters, key, cost, and the mark of the decision.
Take = tuple[Counters, str, int, int]


class Taken:
    """What was taken and has not been given back."""

    __slots__ = ("_takes",)

    def __init__(self) -> None:
        self._takes: list[Take] = []

    def group(self, items: Sequence[Item], decisions: Sequence[Decision]) -> None:
        """Note what was decided as a whole."""
        if all(decisions):
            for (counters, key, cost), decision in zip(items, decisions, strict=True):
                self._takes.append((counters, key, cost, decision._mark))

    def asking(self, single: Single) -> None:
        """A refund of what a decision took, or of a part of it, will happen from now on."""
        verb, counters, args = single
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

    def answered(self, single: Single, answer: Any) -> None:
        verb, counters, args = single
        if verb in ("hit", "attempt") and answer:
            self._takes.append((counters, args[0], args[1], answer._mark))

    def refunds(self) -> list[Single]:
        """What gives all of it back, for who does that: from now on nothing is noted here."""
        takes = self._all()
        return [("refund", counters, (key, cost, mark)) for counters, key, cost, mark in takes]

    def give_back(self) -> None:
        """All of it, now."""
        for counters, key, cost, mark in self._all():
            with suppress(StoreError):  # it must not hide why this is done
                counters.refund(key, cost, mark)

    def give_back_async(self) -> None:
        """The same from a coroutine that will not wait for it."""
        for counters, key, cost, mark in self._all():
            with suppress(StoreError):
                _let_finish(counters.submit("refund", key, cost, mark))

    def _all(self) -> list[Take]:
        takes, self._takes = self._takes, []
        return takes


def do_work(store: Store, work: Work, taken: Taken) -> Done:
    """For threads."""
    try:
        return _do(store, work, taken)
    except StoreError as error:
        error.policies = policies_of(work)
        raise


def policies_of(work: Work) -> tuple[str | None, ...]:
    """The failure policies of all that is asked for."""
    several = [counters for group in work.groups for counters, _, _ in group]
    several += [counters for _, counters, _ in work.singles]
    return tuple([counters.limit.on_failure for counters in several])


def _do(store: Store, work: Work, taken: Taken) -> Done:
    if work.waits:
        wait(work.waits)
    groups: list[Sequence[Decision]] = []
    for group in work.groups:
        groups.append(_hit(store, group))
        taken.group(group, groups[-1])
    answers: list[Any] = []
    for single in work.singles:
        verb, counters, args = single
        taken.asking(single)
        answers.append(getattr(counters, verb)(*args))
        taken.answered(single, answers[-1])
    return groups, answers


def _hit(store: Store, group: list[Item]) -> Sequence[Decision]:
    if len(group) == 1:
        counters, key, cost = group[0]
        return (counters.hit(key, cost),)
    return store.hit_each(group)


async def do_work_async(store: Store, work: Work, taken: Taken) -> Done:
    """For coroutines. All is asked before the first answer is awaited, and leaves together."""
    asked: list[Awaitable[Any]] = []
    awaited = 0
    groups: list[Sequence[Decision]] = []
    answers: list[Any] = []
    try:
        if work.waits:
            await asyncio.wait([asyncio.wrap_future(each) for each in work.waits])
        for group in work.groups:
            asked.append(_submit(store, group))
        for single in work.singles:
            verb, counters, args = single
            asked.append(counters.submit(verb, *args))
            taken.asking(single)
        for group in work.groups:
            awaited += 1
            found = await asked[awaited - 1]
            groups.append((found,) if len(group) == 1 else found)
            taken.group(group, groups[-1])
        for single in work.singles:
            awaited += 1
            answers.append(await asked[awaited - 1])
            taken.answered(single, answers[-1])
    except BaseException as error:
        for waiting in asked[awaited:]:
            _drop(waiting)
        if isinstance(error, StoreError):
            error.policies = policies_of(work)
        raise
    return groups, answers


def _submit(store: Store, group: list[Item]) -> Awaitable[Any]:
    if len(group) == 1:
        counters, key, cost = group[0]
        return counters.submit("hit", key, cost)
    return store.hit_each_async(group)


def _drop(waiting: Awaitable[Any]) -> None:
    """Give up what was asked of a store and will not be awaited."""
    if isinstance(waiting, Coroutine):
        waiting.close()  # it has not begun
    else:
        waiting.cancel()  # type: ignore[attr-defined]  # a future, or a store's own kind


_unattended: set[asyncio.Future[Any]] = set()


def _let_finish(waiting: Awaitable[Any]) -> None:
    future = asyncio.ensure_future(waiting)
    _unattended.add(future)  # the loop itself keeps no task alive
    future.add_done_callback(_finished)


def _finished(future: asyncio.Future[Any]) -> None:
    _unattended.discard(future)
    if not future.cancelled():
        future.exception()  # a store that fails keeps it: there is nobody to tell
