"""Slots as blocks: ``with`` for threads, ``async with`` for tasks."""

from __future__ import annotations

from collections.abc import Hashable
from types import TracebackType

from penstock.concurrency.fair_queue import SlotWaiter
from penstock.concurrency.flow import wait
from penstock.concurrency.leases import Lease
from penstock.concurrency.local_slots import LocalSlots
from penstock.errors import PenstockError
from penstock.steps import drive, drive_async
from penstock.waiters import TaskWaiter, ThreadWaiter


class Hold:
    """A slot that is held, from ``with concurrency.slot(...) as hold``."""

    __slots__ = ("_waiter",)

    def __init__(self, waiter: SlotWaiter) -> None:
        self._waiter = waiter

    @property
    def key(self) -> str:
        """The key whose slot it is."""
        return self._waiter.key

    @property
    def waited(self) -> float:
        """Seconds from asking for the slot to getting it."""
        return max(0, self._waiter.began - self._waiter.arrived) / 1e9

    @property
    def lost(self) -> bool:
        """Whether a shared slot was lost: another process may hold it by now.

        Its lease expired before it could be renewed, because the store or this process did
        not respond. A lost slot stays lost. Slots of a single process are never lost.
        """
        lease = self._waiter.lease
        return lease is not None and lease.lost

    @property
    def degraded(self) -> bool:
        """Whether the failure policy gave out a shared slot that is not counted yet."""
        lease = self._waiter.lease
        return lease is not None and not lease.counted

    def drop(self) -> None:
        """Report that this run was dropped for overload, for a size that adapts.

        A ``TimeoutError`` that leaves the block has the same effect.
        """
        self._waiter.dropped = True

    def __repr__(self) -> str:
        lost = " lost" if self.lost else ""
        return f"<Hold of {self.key!r}{lost}>"


class _Block:
    """The common part of both kinds."""

    __slots__ = ("_by", "_key", "_priority", "_slots", "_timeout", "_waiter")

    def __init__(
        self, slots: LocalSlots, key: str, priority: int, by: Hashable, timeout: int | None
    ) -> None:
        self._slots = slots
        self._key = key
        self._priority = priority
        self._by = by
        self._timeout = timeout
        self._waiter: SlotWaiter | None = None

    def _new_waiter(self) -> SlotWaiter:
        if self._waiter is not None:
            raise PenstockError(
                f"this slot of {self._key!r} is held already: call slot() for another one"
            )
        return SlotWaiter(self._key, self._priority, self._by, may_wait=self._timeout != 0)

    def _abandon(self, waiter: SlotWaiter) -> None:
        """Remove the waiter from wherever it is: entering was interrupted or refused."""
        lease = self._slots.leave(waiter)
        if lease is not None:
            self._slots.give_back_later(lease)

    def _let_go(self, error: BaseException | None) -> Lease | None:
        """Release the slot. A run that raised an error of its own says nothing about load."""
        waiter = self._waiter
        if waiter is None:
            return None
        if isinstance(error, TimeoutError):
            waiter.dropped = True
        try:
            return self._slots.leave(waiter, recorded=error is None or waiter.dropped)
        except BaseException:
            self._slots.leave(waiter)  # a Ctrl-C may have come before it was out
            raise
        finally:
            self._waiter = None


class Slot(_Block):
    """``with concurrency.slot(key):`` runs the block in a slot, or raises `NoSlot`."""

    __slots__ = ()

    def __enter__(self) -> Hold:
        waiter = self._new_waiter()
        try:
            if not self._slots.enter(waiter, ThreadWaiter):
                drive(wait(self._slots, waiter, self._timeout))
            self._waiter = waiter
        except BaseException:
            self._waiter = None
            self._abandon(waiter)
            raise
        return Hold(waiter)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease = self._let_go(error)
        if lease is not None:
            self._slots.give_back(lease)


class AsyncSlot(_Block):
    """``async with concurrency.slot(key):`` runs the block in a slot, or raises `NoSlot`."""

    __slots__ = ()

    async def __aenter__(self) -> Hold:
        waiter = self._new_waiter()
        try:
            if not self._slots.enter(waiter, TaskWaiter):
                await drive_async(wait(self._slots, waiter, self._timeout))
            self._waiter = waiter
        except BaseException:
            self._waiter = None
            self._abandon(waiter)
            raise
        return Hold(waiter)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease = self._let_go(error)
        if lease is not None:
            await self._slots.give_back_async(lease)
