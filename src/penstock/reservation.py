"""Reservations: take what may be needed, settle what was used; or take now for later."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import Any

from penstock.combined import parts_of
from penstock.decision import Decision
from penstock.errors import InvalidCost, LimitError, LimitExceeded, PenstockError, StoreError
from penstock.flow_steps import CallCounters, CallEach, HitAll, Step, drive, drive_async
from penstock.limits import Limit
from penstock.stores.base import Counters, Store, check_cost, check_key, speaking
from penstock.undecided_hits import has_lockout, take

Flow = Generator[Step, Any, None]


def is_bucket(limit: Limit) -> bool:
    """Whether units of a limit can be reserved for later."""
    buckets = limit.algorithm in ("token_bucket", "leaky_bucket")
    return buckets and limit.soft is None and not limit.lockout_ns


def check_bucket(parts: Sequence[Counters]) -> None:
    """An error unless there is one limit, and units of it can be reserved for later."""
    if len(parts) > 1:
        limits = "; ".join([str(counters.limit) for counters in parts])
        raise LimitError(
            f"max_delay reserves from one limit, not from {limits!r}: reserve from one of them,"
            " and hit the others when its turn has come"
        )
    limit = parts[0].limit
    if not is_bucket(limit):
        raise LimitError(
            f"max_delay reserves from a token_bucket or a leaky_bucket without lockout and soft,"
            f" not from {str(limit)!r}; wait() works with every limit"
        )


class _Booking:
    """What was reserved and whether it has been settled, as flows for threads and tasks.

    With ``patience``, in nanoseconds, it may be for later: see `Counters.reserve`.
    """

    def __init__(
        self, store: Store, counters: Counters, key: str, cost: int, patience: int | None = None
    ) -> None:
        self.key = check_key(key)
        self.cost = check_cost(cost)
        self._store = store
        self._parts = parts_of(counters)
        self._patience = patience
        if patience is not None:
            check_bucket(self._parts)
        self._decisions: list[Decision] = []  # of each part
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
    def delay(self) -> float:
        """In how many seconds its turn comes, counted from when it was made.

        A refused one has no turn: `LimitExceeded`, and not a 0.0 on which somebody would act.
        """
        self._check_allowed()
        return self.decision.delay

    @property
    def settled(self) -> bool:
        return self._settled

    def __bool__(self) -> bool:
        return self.decision.allowed

    def _reserve(self) -> Flow:
        items = [(counters, self.key, self.cost) for counters in self._parts]
        if self._patience is not None:
            place = (self.key, self.cost, self._patience)
            reserved: Decision = yield CallCounters(self._parts[0], "reserve", place)
            self._decisions = [reserved]
        elif any(has_lockout(counters) for counters in self._parts):  # which a refusal might start
            hits = yield from take(self._store, items)
            self._undecided = hits.settle
            self._decisions = hits.decisions
        elif len(items) == 1:
            hit: Decision = yield CallCounters(self._parts[0], "hit", (self.key, self.cost))
            self._decisions = [hit]
        else:
            self._decisions = yield HitAll(self._store, items)
        self._decision = speaking(self._decisions)

    def _settle(self, actual: int) -> Flow:
        if type(actual) is not int or actual < 0:
            raise InvalidCost(f"settle for a whole number of at least 0, not {actual!r}")
        self._check_allowed()
        if self._settled:
            raise PenstockError("this reservation was settled already")
        self._settled = True  # from here on it happens, even if this is interrupted
        try:
            if actual > self.cost:
                extra = (self.key, actual - self.cost)
                yield from self._call([("charge", extra)] * len(self._parts))
            elif actual < self.cost:
                back = self.cost - actual
                yield from self._call(
                    [
                        (self._undo(part.limit, decision), (self.key, back, decision._mark, actual))
                        for part, decision in zip(self._parts, self._decisions, strict=True)
                    ]
                )
        except Exception:
            self._settled = False
            raise
        steps, self._undecided = self._undecided, ()
        with contextlib.suppress(StoreError):  # it runs out by itself
            for step in steps:  # noqa: UP028 (a list cannot be sent what a step returns)
                yield step

    def _undo(self, limit: Limit, decision: Decision) -> str:
        """How to give back: if its turn was to come later, others may be behind it."""
        later = self._patience is not None or (decision._delay > 0 and is_bucket(limit))
        return "cancel" if later else "refund"

    def _call(self, calls: list[tuple[str, tuple[Any, ...]]]) -> Flow:
        """Call the counters of each limit, in one step if it is the same verb of all."""
        parts, verbs = self._parts, {verb for verb, _ in calls}
        if len(parts) > 1 and len(verbs) == 1:
            each = [(part, args) for part, (_, args) in zip(parts, calls, strict=True)]
            yield CallEach(self._store, verbs.pop(), each)
            return
        for part, (verb, args) in zip(parts, calls, strict=True):
            yield CallCounters(part, verb, args)

    def _check_allowed(self) -> None:
        if not self:
            raise LimitExceeded(self.key, self.decision)

    def _leave(self, error: BaseException | None) -> Flow:
        """An exception gives everything back; otherwise what was reserved stays taken."""
        if not self._settled and self.decision:
            yield from self._settle(self.cost if error is None else 0)


class Reservation(_Booking):
    """Units taken in advance: ``if r: ... r.settle(used)``, or ``with`` it.

    Entering a refused one raises `LimitExceeded`. Leaving with an exception gives
    everything back, unless it was settled before; leaving without having settled
    keeps what was reserved.
    """

    def __init__(
        self, store: Store, counters: Counters, key: str, cost: int, patience: int | None = None
    ) -> None:
        super().__init__(store, counters, key, cost, patience)
        drive(self._reserve())

    def settle(self, actual: int) -> None:
        """Give back what was reserved and not used, or charge what was used beyond it.

        If the store fails, it may be tried again.
        """
        drive(self._settle(actual))

    def cancel(self) -> None:
        """Give everything back, or as much as nobody relies on who reserved after it."""
        self.settle(0)

    def __enter__(self) -> Reservation:
        self._check_allowed()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        drive(self._leave(error))


class AsyncReservation(_Booking):
    """`Reservation` for coroutines: made by ``async with`` or by awaiting it."""

    def __await__(self) -> Generator[Any, None, AsyncReservation]:
        return self._make().__await__()

    async def _make(self) -> AsyncReservation:
        if self._decision is None:
            await drive_async(self._reserve())
        return self

    async def settle(self, actual: int) -> None:
        """Give back what was reserved and not used, or charge what was used beyond it.

        It happens even if the task is cancelled while it waits for the store. If the store
        fails, it may be tried again.
        """
        await drive_async(self._settle(actual))

    async def cancel(self) -> None:
        """Give everything back, or as much as nobody relies on who reserved after it."""
        await self.settle(0)

    async def __aenter__(self) -> AsyncReservation:
        await self._make()
        self._check_allowed()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await drive_async(self._leave(error))
