"""Reservations: take what may be needed, settle for what was."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Any

from penstock.decision import Decision
from penstock.drivers import ask, ask_async
from penstock.errors import InvalidCost, LimitExceeded, PenstockError
from penstock.flow import Ask
from penstock.stores.base import Counters


class _Bill:
    """What was reserved and whether it has been settled: all but the waiting."""

    def __init__(self, counters: Counters, key: str, cost: int) -> None:
        self.key = key
        self.cost = cost
        self._counters = counters
        self._decision: Decision | None = None
        self._settled = False

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

    def _asked(self) -> Ask:
        return Ask(self._counters, "hit", (self.key, self.cost))

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

    def _due_on_exit(self, error: BaseException | None) -> Ask | None:
        """An exception gives everything back; otherwise what was reserved stays taken."""
        return self._due(self.cost if error is None else 0)


class Reservation(_Bill):
    """Units taken in advance: ``if r: ... r.settle(used)``, or ``with`` it.

    Entering a refused one raises `LimitExceeded`. Leaving with an exception gives
    everything back, unless it was settled before; leaving without having settled
    keeps what was reserved.
    """

    def __init__(self, counters: Counters, key: str, cost: int) -> None:
        super().__init__(counters, key, cost)
        self._decision = ask(self._asked())

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
            self._decision = await ask_async(self._asked())
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
