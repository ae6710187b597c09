"""Holds: units that are set aside, then settled for what was used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any

from penstock.quota.errors import QuotaError
from penstock.quota.views import Settlement, Stock


class _HeldUnits:
    """``id`` names the hold in the ledger: another process can settle it with that."""

    def __init__(self, account: str, meter: str, amount: int, id: str) -> None:
        self.account = account
        self.meter = meter
        self.amount = amount
        self.id = id
        self.settled = False

    def __repr__(self) -> str:
        state = "settled" if self.settled else "open"
        return f"<{type(self).__name__} {self.amount:,} {self.meter} of {self.account!r}, {state}>"


class Hold(_HeldUnits):
    """Units that `Ledger.hold` has set aside.

    Leaving the ``with`` block without having settled spends all of them; an exception gives all
    back.
    """

    def __init__(
        self, row: Stock, amount: int, settle: Callable[[str, str, int], Settlement]
    ) -> None:
        super().__init__(row.account, row.meter, amount, row.id)
        self._settle = settle

    def settle(self, used: int) -> Settlement:
        """Count what was used, more or less than was held, and give the rest back.

        May be repeated: the larger total counts.
        """
        settlement = self._settle(self.account, self.id, used)
        self.settled = True
        return settlement

    def release(self) -> None:
        """Give everything back."""
        self.settle(0)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self.settled:
            self.settle(self.amount if error is None else 0)


class AsyncHold(_HeldUnits):
    """`Hold` for coroutines: made by ``async with`` or by awaiting it."""

    def __init__(
        self,
        account: str,
        meter: str,
        amount: int,
        id: str,
        take: Callable[[], Awaitable[Stock]],
        settle: Callable[[str, str, int], Awaitable[Settlement]],
    ) -> None:
        super().__init__(account, meter, amount, id)
        self._take: Callable[[], Awaitable[Stock]] | None = take
        self._settle = settle

    def __await__(self) -> Generator[Any, None, AsyncHold]:
        return self._make().__await__()

    async def _make(self) -> AsyncHold:
        take, self._take = self._take, None
        if take is not None:
            await take()
        return self

    async def settle(self, used: int) -> Settlement:
        """Count what was used, and give the rest back: see `Hold.settle`.

        It happens even if the task is cancelled while it waits.
        """
        if self._take is not None:
            raise QuotaError("this hold has not been made yet: use `async with` or await")
        settlement = await self._settle(self.account, self.id, used)
        self.settled = True
        return settlement

    async def release(self) -> None:
        """Give everything back."""
        await self.settle(0)

    async def __aenter__(self) -> AsyncHold:
        return await self._make()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self.settled:
            await self.settle(self.amount if error is None else 0)
