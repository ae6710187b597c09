"""Reservations: take what may be needed, settle for what was."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any

from penstock.decision import Decision
from penstock.drivers import ask, ask_async
from penstock.errors import InvalidCost, LimitExceeded, PenstockError, StoreError
from penstock.flow import Ask
from penstock.stores.base import Counters, Store, check_cost, check_key
from penstock.undecided import Flow, Single, Undecided, finish, finish_async, has_lockout, take


class _Bill:
    """What was reserved and whether it has been settled: all but the waiting."""

    def __init__(self, store: Store, counters: Counters, key: str, cost: int) -> None:
        self.key = check_key(key)
        self.cost = check_cost(cost)
        self._store = store
        self._counters = counters
        self._decision: Decision | None = None
        self._settled = False
        self._undecided: Sequence[Single] = ()

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

    def _asked(self) -> Ask | None:
        """None where a refusal might start a lockout: then it is to be `_taken`."""
        if has_lockout(self._counters):
            return None
        return Ask(self._counters, "hit", (self.key, self.cost))

    def _taken(self) -> Flow:
        return take(self._store, [(self._counters, self.key, self.cost)])

    def _note(self, found: Undecided) -> Decision:
        self._undecided = found.settle
        return found.decisions[0]

    def _due(self, actual: int) -> Ask | None:
        """What to ask of the store so that ``actual`` units are booked in the end."""
        if type(actual) is not int or actual < 0:
            raise InvalidCost(f"settle for a whole number of at least 0, not {actual!r}")
        if not self.decision:
            raise LimitExceeded(self.key, self.decision)
        if self._settled:
            raise PenstockError("this reservation was settled already")
        if actual > self.cost:
            return Ask(self._counters, "charge", (self.key, actual - self.cost))
        if actual < self.cost:
            back = (self.key, self.cost - actual, self.decision._mark, actual)
            return Ask(self._counters, "refund", back)
        return None

    def _settling(self, due: Ask | None) -> Ask | None:
        """From here on it happens: also if whoever waits for it is interrupted or cancelled."""
        self._settled = True
        return due

    def _decided(self) -> Sequence[Single]:
        """Once: what was undecided until now."""
        steps, self._undecided = self._undecided, ()
        return steps

    def _due_on_exit(self, error: BaseException | None) -> Ask | None:
        """An exception gives everything back; otherwise what was reserved stays taken."""
        return self._due(self.cost if error is None else 0)


class Reservation(_Bill):
    """Units taken in advance: ``if r: ... r.settle(used)``, or ``with`` it.

    Entering a refused one raises `LimitExceeded`. Leaving with an exception gives
    everything back, unless it was settled before; leaving without having settled
    keeps what was reserved.
    """

    def __init__(self, store: Store, counters: Counters, key: str, cost: int) -> None:
        super().__init__(store, counters, key, cost)
        asked = self._asked()
        self._decision = self._note(finish(self._taken())) if asked is None else ask(asked)

    def settle(self, actual: int) -> None:
        """Give back what was reserved and not used, or charge what was used beyond it.

        If the store fails, it may be tried again.
        """
        self._settle(self._due(actual))

    def _settle(self, due: Ask | None) -> None:
        try:
            ask(self._settling(due))
        except Exception:
            self._settled = False
            raise
        with contextlib.suppress(StoreError):  # it runs out by itself
            for step in self._decided():
                step.ask()

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


class AsyncReservation(_Bill):
    """`Reservation` for coroutines: made by ``async with`` or by awaiting it."""

    def __await__(self) -> Generator[Any, None, AsyncReservation]:
        return self._make().__await__()

    async def _make(self) -> AsyncReservation:
        if self._decision is None:
            asked = self._asked()
            if asked is None:
                self._decision = self._note(await finish_async(self._taken()))
            else:
                self._decision = await ask_async(asked)
        return self

    async def settle(self, actual: int) -> None:
        """Give back what was reserved and not used, or charge what was used beyond it.

        It happens even if the task is cancelled while it waits for the store. If the store
        fails, it may be tried again.
        """
        await self._settle(self._due(actual))

    async def _settle(self, due: Ask | None) -> None:
        try:
            await ask_async(self._settling(due))
        except Exception:
            self._settled = False
            raise
        with contextlib.suppress(StoreError):  # it runs out by itself
            for step in self._decided():
                await step.submit()

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
