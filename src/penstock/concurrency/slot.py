"""Slots as blocks: ``with`` for threads, ``async with`` for tasks.

Waiting is a flow, written once for both, which yields a `Pause` or an `Ask` of the shared store:
see `penstock.flow_steps`. It holds nothing. When it is interrupted, at whatever point, the slots
know what its waiter has at that moment: a place in the queue, or a slot that it was handed just
before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Hashable
from dataclasses import dataclass

from penstock.concurrency.fair_queue import SlotWaiter, Stage
from penstock.concurrency.leases import Lease
from penstock.concurrency.local_slots import LocalSlots
from penstock.errors import PenstockError
from penstock.flow_steps import Pause, drive, drive_async
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
        return f"<Hold of {self.key!r}{' lost' if self.lost else ''}>"


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the shared store for a slot and hand it out; returns how long not to ask again."""

    slots: LocalSlots
    waiter: SlotWaiter

    def run(self) -> int | None:
        return self.slots.ask(self.waiter)

    def run_async(self) -> Awaitable[int | None]:
        return self.slots.ask_async(self.waiter)


Flow = Generator[Ask | Pause, int | None, None]


@dataclass(slots=True, eq=False)
class _Block:
    """The common part of both kinds."""

    _slots: LocalSlots
    _key: str
    _priority: int
    _by: Hashable
    _timeout: int | None
    _waiter: SlotWaiter | None = None

    def _new_waiter(self) -> SlotWaiter:
        if self._waiter is not None:
            raise PenstockError(
                f"this slot of {self._key!r} is held already: call slot() for another one"
            )
        return SlotWaiter(self._key, self._priority, self._by, may_wait=self._timeout != 0)

    def _wait(self, waiter: SlotWaiter) -> Flow:
        """Wait until the waiter has its slot; it was not admitted at once."""
        slots, timeout, wakeup = self._slots, self._timeout, waiter.wakeup
        assert wakeup is not None
        pause: int | None
        while True:
            pause = None
            if waiter.asks and waiter.stage in (Stage.NEW, Stage.WAITING):
                pause = yield Ask(slots, waiter)
            if waiter.stage is Stage.RUNNING:
                return
            if waiter.stage is not Stage.WAITING:
                raise slots.refusal(waiter)
            if timeout is not None:
                waited = slots.clock.now() - waiter.arrived
                if waited >= timeout:
                    slots.give_up(waiter, waited)
                    continue
                pause = timeout - waited if pause is None else min(pause, timeout - waited)
            yield Pause(slots.clock, pause, wakeup)

    def _abandon(self, waiter: SlotWaiter) -> None:
        """Remove the waiter from wherever it is: entering was interrupted or refused."""
        self._waiter = None
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
                drive(self._wait(waiter))
            self._waiter = waiter
        except BaseException:
            self._abandon(waiter)
            raise
        return Hold(waiter)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
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
                await drive_async(self._wait(waiter))
            self._waiter = waiter
        except BaseException:
            self._abandon(waiter)
            raise
        return Hold(waiter)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        lease = self._let_go(error)
        if lease is not None:
            await self._slots.give_back_async(lease)
