"""Reservations: take what may be needed, settle for what was."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any

from penstock.decision import Decision
from penstock.errors import InvalidCost, LimitExceeded, PenstockError, StoreError
from penstock.steps import CallCounters, drive, drive_async
from penstock.stores.base import Counters, Store, check_cost, check_key
from penstock.undecided import Flow, Undecided, has_lockout, take


class _Booking:
    """What was reserved and whether it has been settled: all but the input and output."""

    def __init__(self, store: Store, counters: Counters, key: str, cost: int) -> None:
        self.key = check_key(key)
        self.cost = check_cost(cost)
        self._store = store
        self._counters = counters
        self._decision: Decision | None = None
        self._settled = False
        self._undecided: Sequence[CallCounters] = ()

    @property
    def decision(self) -> Decision:
        """The store's decision on the reservation."""
        if self._decision is None:
            raise PenstockError("this reservation has not been made yet: use `async with` or await")
        return self._decision

    @property
    def settled(self) -> bool:
        return self._settled

    def __bool__(self) -> bool:
        return self.decision.allowed

    def _hit(self) -> CallCounters | None:
        """None if a refusal might start a lockout: then see `_undecided_hit`."""
        if has_lockout(self._counters):
            return None
        return CallCounters(self._counters, "hit", (self.key, self.cost))

    def _undecided_hit(self) -> Flow:
        return take(self._store, [(self._counters, self.key, self.cost)])

    def _note(self, hit: Undecided) -> Decision:
        self._undecided = hit.settle
        return hit.decisions[0]

    def _due(self, actual: int) -> CallCounters | None:
        """The step after which ``actual`` units are booked, if there is one."""
        if type(actual) is not int or actual < 0:
            raise InvalidCost(f"settle for a whole number of at least 0, not {actual!r}")
        if not self.decision:
            raise LimitExceeded(self.key, self.decision)
        if self._settled:
            raise PenstockError("this reservation was settled already")
        if actual > self.cost:
            return CallCounters(self._counters, "charge", (self.key, actual - self.cost))
        if actual < self.cost:
            back = (self.key, self.cost - actual, self.decision._mark, actual)
            return CallCounters(self._counters, "refund", back)
        return None

    def _decided(self) -> Sequence[CallCounters]:
        """The steps that settle what was undecided until now; only once."""
        steps, self._undecided = self._undecided, ()
        return steps

    def _due_on_exit(self, error: BaseException | None) -> CallCounters | None:
        """An exception gives everything back; otherwise what was reserved stays taken."""
        return self._due(self.cost if error is None else 0)


class Reservation(_Booking):
    """Units taken in advance: ``if r: ... r.settle(used)``, or ``with`` it.

    Entering a refused one raises `LimitExceeded`. Leaving with an exception gives
    everything back, unless it was settled before; leaving without having settled
    keeps what was reserved.
    """

    def __init__(self, store: Store, counters: Counters, key: str, cost: int) -> None:
        super().__init__(store, counters, key, cost)
        hit = self._hit()
        self._decision = self._note(drive(self._undecided_hit())) if hit is None else hit.run()

    def settle(self, actual: int) -> None:
        """Give back what was reserved and not used, or charge what was used beyond it.

        If the store fails, it may be tried again.
        """
        self._settle(self._due(actual))

    def _settle(self, due: CallCounters | None) -> None:
        self._settled = True  # from here on it happens, even if this thread is interrupted
        try:
            if due is not None:
                due.run()
        except Exception:
            self._settled = False
            raise
        with contextlib.suppress(StoreError):  # it runs out by itself
            for step in self._decided():
                step.run()

    def cancel(self) -> None:
        """Give everything back."""
        self.settle(0)

    def __enter__(self) -> Reservation:
        if not self:
            raise LimitExceeded(self.key, self.decision)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._settled and self.decision:
            self._settle(self._due_on_exit(error))


class AsyncReservation(_Booking):
    """`Reservation` for coroutines: made by ``async with`` or by awaiting it."""

    def __await__(self) -> Generator[Any, None, AsyncReservation]:
        return self._make().__await__()

    async def _make(self) -> AsyncReservation:
        if self._decision is None:
            hit = self._hit()
            if hit is None:
                self._decision = self._note(await drive_async(self._undecided_hit()))
            else:
                self._decision = await hit.run_async()
        return self

    async def settle(self, actual: int) -> None:
        """Give back what was reserved and not used, or charge what was used beyond it.

        It happens even if the task is cancelled while it waits for the store. If the store
        fails, it may be tried again.
        """
        await self._settle(self._due(actual))

    async def _settle(self, due: CallCounters | None) -> None:
        self._settled = True  # from here on it happens, even if this task is cancelled
        try:
            if due is not None:
                await due.run_async()
        except Exception:
            self._settled = False
            raise
        with contextlib.suppress(StoreError):  # it runs out by itself
            for step in self._decided():
                await step.run_async()

    async def cancel(self) -> None:
        """Give everything back."""
        await self.settle(0)

    async def __aenter__(self) -> AsyncReservation:
        await self._make()
        if not self:
            raise LimitExceeded(self.key, self.decision)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._settled and self.decision:
            await self._settle(self._due_on_exit(error))
