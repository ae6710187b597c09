"""Batches of threads, without a thread of ours.

The first caller waits for others, then makes the call, unless the caller that fills the batch
makes it before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from penstock.client.batch_base import BatchBase, Item, Result
from penstock.clock import Clock
from penstock.errors import PenstockError


class Batch(BatchBase[Item, Result]):
    """A function decorated with `batch`, for threads: ``function(item)``."""

    def __init__(
        self, function: Callable[[list[Item]], Any], size: int, within: float, clock: Clock | None
    ) -> None:
        super().__init__(function, size, within, clock)
        self._open: list[_Seat] | None = None
        self._lock = threading.Lock()

    def __call__(self, item: Item) -> Result:
        seat = _Seat(item)
        with self._lock:
            self._check_open()
            first = self._open is None
            group = self._open = self._open or []
            group.append(seat)
            full = len(group) == self._size
            if full:
                self._open = None
        if full:
            self._run(group)
        elif first:
            self._lead(group, seat)
        return self._wait(group, seat)

    def flush(self) -> None:
        """Make the call now, in this thread, with the items gathered so far."""
        with self._lock:
            group, self._open = self._open, None
        if group:
            self._run(group)

    def close(self) -> None:
        """`flush`, and accept no more items."""
        with self._lock:
            self._closed = True
        self.flush()

    def _lead(self, group: list[_Seat], seat: _Seat) -> None:
        """Wait for other callers, then make the call, unless another caller does."""
        try:
            if self._clock is None:
                seat.woken.wait(self._within)
            else:
                self._clock.sleep(self._within)
        except BaseException:
            self._hand_over(group, seat)
            raise
        with self._lock:
            ours = self._open is group
            if ours:
                self._open = None
        if ours:
            self._run(group)

    def _wait(self, group: list[_Seat], seat: _Seat) -> Result:
        while not seat.done:
            seat.woken.wait()
            seat.woken.clear()
            if seat.leads and not seat.done:
                self._lead(group, seat)
        if isinstance(seat.result, BaseException):
            raise seat.result
        result: Result = seat.result
        return result

    def _hand_over(self, group: list[_Seat], seat: _Seat) -> None:
        """Leave out a caller that was interrupted while it waited; the next one leads."""
        with self._lock:
            if self._open is not group:
                return
            group.remove(seat)
            if group:
                group[0].leads = True
                group[0].woken.set()
            else:
                self._open = None

    def _run(self, group: list[_Seat]) -> None:
        """Make the call in this thread, for all callers."""
        items = [seat.item for seat in group]
        try:
            results = self._results(items, self._function(list(items)))
        except Exception as error:
            results = [error] * len(group)
        except BaseException:
            lost = PenstockError(f"{self._name} was interrupted in the thread that called it")
            _hand_out(group, [lost] * len(group))
            raise
        _hand_out(group, results)


class _Seat:
    """One thread that waits."""

    __slots__ = ("done", "item", "leads", "result", "woken")

    def __init__(self, item: Any) -> None:
        self.item = item
        self.result: Any = None
        self.done = False
        self.leads = False
        self.woken = threading.Event()


def _hand_out(group: list[_Seat], results: list[Any]) -> None:
    for seat, result in zip(group, results, strict=True):
        seat.result = result
        seat.done = True
        seat.woken.set()
