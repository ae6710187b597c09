"""Slots as blocks: ``with`` for threads, ``async with`` for tasks."""

from __future__ import annotations

from collections.abc import Hashable
from types import TracebackType

from penstock.concurrency.desk import Desk
from penstock.concurrency.flow import drive, drive_async, wait
from penstock.concurrency.leases import Lease
from penstock.concurrency.line import Place
from penstock.errors import PenstockError
from penstock.line import TaskTicket, ThreadTicket


class Hold:
    """A slot that is held: what ``with concurrency.slot(...) as hold`` gives."""

    __slots__ = ("_place",)

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def key(self) -> str:
        """Whose slot it is."""
        return self._place.key

    @property
    def waited(self) -> float:
        """Seconds from asking for the slot to getting it."""
        return max(0, self._place.began - self._place.arrived) / 1e9

    @property
    def lost(self) -> bool:
        """Whether a shared slot could not be kept: another may have it by now.

        Its lease ran out before it could be renewed, because the store or this process did
        not answer. Once lost it stays so. Slots of one process are never lost.
        """
        lease = self._place.lease
        return lease is not None and lease.lost

    @property
    def degraded(self) -> bool:
        """Whether a shared slot was given out by the failure policy, and is not counted yet."""
        lease = self._place.lease
        return lease is not None and not lease.counted

    def drop(self) -> None:
        """This run was dropped for overload: a size that adapts counts it as such.

        A ``TimeoutError`` that leaves the block says the same.
        """
        self._place.dropped = True

    def __repr__(self) -> str:
        lost = " lost" if self.lost else ""
        return f"<Hold of {self.key!r}{lost}>"


class _Block:
    """What both kinds have in common."""

    __slots__ = ("_by", "_desk", "_key", "_place", "_priority", "_timeout")

    def __init__(
        self, desk: Desk, key: str, priority: int, by: Hashable, timeout: int | None
    ) -> None:
        self._desk = desk
        self._key = key
        self._priority = priority
        self._by = by
        self._timeout = timeout
        self._place: Place | None = None

    def _new_place(self) -> Place:
        if self._place is not None:
            raise PenstockError(
                f"this slot of {self._key!r} is held already: call slot() for another one"
            )
        return Place(self._key, self._priority, self._by, may_wait=self._timeout != 0)

    def _abandon(self, place: Place) -> None:
        """Out of wherever it is, when entering was interrupted or refused."""
        lease = self._desk.leave(place)
        if lease is not None:
            self._desk.give_back_later(lease)

    def _let_go(self, error: BaseException | None) -> Lease | None:
        """Out of the slot. A run that ended by an error of its own says nothing about load."""
        place = self._place
        if place is None:
            return None
        if isinstance(error, TimeoutError):
            place.dropped = True
        try:
            return self._desk.leave(place, recorded=error is None or place.dropped)
        except BaseException:
            self._desk.leave(place)  # a Ctrl-C may have come before it was out
            raise
        finally:
            self._place = None


class Slot(_Block):
    """``with concurrency.slot(key):`` runs the block in a slot, or raises `NoSlot`."""

    __slots__ = ()

    def __enter__(self) -> Hold:
        place = self._new_place()
        try:
            if not self._desk.enter(place, ThreadTicket):
                drive(self._desk, wait(self._desk, place, self._timeout))
            self._place = place
        except BaseException:
            self._place = None
            self._abandon(place)
            raise
        return Hold(place)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease = self._let_go(error)
        if lease is not None:
            self._desk.give_back(lease)


class AsyncSlot(_Block):
    """``async with concurrency.slot(key):`` runs the block in a slot, or raises `NoSlot`."""

    __slots__ = ()

    async def __aenter__(self) -> Hold:
        place = self._new_place()
        try:
            if not self._desk.enter(place, TaskTicket):
                await drive_async(self._desk, wait(self._desk, place, self._timeout))
            self._place = place
        except BaseException:
            self._place = None
            self._abandon(place)
            raise
        return Hold(place)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease = self._let_go(error)
        if lease is not None:
            await self._desk.give_back_async(lease)
