"""Batches of tasks. A batch runs in a task of its own: a cancelled caller does not cancel it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any, Generic

from penstock.client.batch_base import BatchBase, Item, Result
from penstock.clock import MONOTONIC, Clock


class AsyncBatch(BatchBase[Item, Result]):
    """An async function decorated with `batch`: ``await function(item)``."""

    def __init__(
        self, function: Callable[[list[Item]], Any], size: int, within: float, clock: Clock | None
    ) -> None:
        super().__init__(function, size, within, clock)
        self._open: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Group[Item]]
        self._open = weakref.WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, item: Item) -> Result:
        self._check_open()
        loop = asyncio.get_running_loop()
        group = self._open.get(loop)
        if group is None:
            group = self._open[loop] = _Group()
            task = loop.create_task(self._run(loop, group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        future: asyncio.Future[Result] = loop.create_future()
        group.waiting[future] = item
        if len(group.waiting) == self._size:
            self._seal(loop, group)
        try:
            return await future
        finally:
            # A cancelled caller is left out, if it is not too late for that.
            group.waiting.pop(future, None)

    async def flush(self) -> None:
        """Make the call now with the items gathered so far, and wait for all calls in progress."""
        loop = asyncio.get_running_loop()
        group = self._open.get(loop)
        if group is not None:
            self._seal(loop, group)
        ours = [task for task in self._tasks if task.get_loop() is loop]
        if ours:
            await asyncio.wait(ours)

    async def close(self) -> None:
        """`flush`, and accept no more items."""
        self._closed = True
        await self.flush()

    def _seal(self, loop: asyncio.AbstractEventLoop, group: _Group[Item]) -> None:
        """Accept no more items."""
        if self._open.get(loop) is group:
            del self._open[loop]
        group.full.set()

    async def _run(self, loop: asyncio.AbstractEventLoop, group: _Group[Item]) -> None:
        waiting: dict[asyncio.Future[Any], Item] = group.waiting
        try:
            await self._gather(group)
            self._seal(loop, group)
            waiting = dict(group.waiting)
            if not waiting:
                return
            items = list(waiting.values())
            results = self._results(items, await self._function(list(items)))
        except asyncio.CancelledError:
            self._seal(loop, group)
            for future in list(waiting):
                future.cancel()
            raise
        except Exception as error:
            results = [error] * len(waiting)
        for future, result in zip(waiting, results, strict=True):
            if not future.done():
                _settle(future, result)

    async def _gather(self, group: _Group[Item]) -> None:
        """Wait until the batch is full or its time is up."""
        tasks = [
            asyncio.ensure_future(group.full.wait()),
            asyncio.ensure_future((self._clock or MONOTONIC).sleep_async(self._within)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


class _Group(Generic[Item]):
    """The items that tasks have added, in order of arrival."""

    def __init__(self) -> None:
        self.waiting: dict[asyncio.Future[Any], Item] = {}
        self.full = asyncio.Event()


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not isinstance(result, BaseException):
        future.set_result(result)
    elif isinstance(result, StopIteration):  # no future can hold one
        future.set_exception(RuntimeError(f"a batch raised {result!r}"))
    else:
        future.set_exception(result)
