"""The counters of a quota: a stock in the store, with the ledger behind it.

`hit_flow` is written once, for threads and for coroutines (`flows.py`)::

    hit all ──> all allowed: write down what was taken, done
            └─> a limit refuses: done, nothing was taken
            └─> only stocks are short: ask the ledger for more, and hit again

While the ledger or the store is away, and a stock is empty, the quota's ``on_failure`` decides.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock import flows
from penstock.algorithms.words import NO_MARK
from penstock.decision import Decision, decided
from penstock.durations import SECOND
from penstock.errors import StoreError
from penstock.limit_options import MOST_UNITS
from penstock.limits import CLOSED, stock_limit
from penstock.quota import stock_row
from penstock.quota.stock_numbers import shown
from penstock.quota.stocks import FillRequest, Stocks
from penstock.stores.base import ENDLESS, Counters, check_cost, check_key

Item = tuple[Counters, str, int]  # counters, key, cost

# How often a request has a stock filled, if others are faster to take what was put in.
_FILLS = 5
NOWHERE = -2  # the mark of a decision that took nothing anywhere
_unattended: set[asyncio.Future[Any]] = set()


@dataclass(slots=True)
class Hit:
    attempt: bool
    items: list[Item] = field(default_factory=list)


@dataclass(slots=True)
class Peek:
    items: list[Item] = field(default_factory=list)


@dataclass(slots=True)
class Fill:
    requests: list[FillRequest]


Step = Hit | Peek | Fill


class Deciding(Protocol):
    """The store that quotas are counters of: see `quota_store.py`."""

    def start(self) -> None: ...

    def hit_each(self, wanted: list[Item], attempt: bool = False) -> list[Decision]: ...

    def hit_each_async(
        self, wanted: list[Item], attempt: bool = False
    ) -> Awaitable[list[Decision]]: ...

    def do(self, step: Step) -> Any: ...

    async def do_async(self, step: Step) -> Any: ...


class QuotaCounters(Counters):
    """The quota of a meter. Keys are accounts."""

    def __init__(
        self, store: Deciding, stocks: Stocks, meter: str, plan: str | None, on_failure: str
    ) -> None:
        super().__init__(stock_limit(on_failure), None)
        self.inner = stocks.counters(meter)
        self.meter = meter
        self.plan = plan
        self.open = on_failure == "open"
        self._store = store
        self._stocks = stocks

    def now(self) -> int:
        return self.inner.now()

    # What the flow needs -----------------------------------------------------------------------

    def request(self, account: str, cost: int) -> FillRequest | None:
        """What to ask the ledger for, or None if it has just refused as much."""
        known, now = self._stocks.numbers.of(self.meter, account), time.monotonic()
        if known.is_refused(cost, now) or now < known.unknown_until:
            return None
        return FillRequest(account, self.meter, cost, self.plan)

    def took(self, account: str, cost: int, decision: Decision) -> None:
        """Write it down; and if the stock runs low, have it filled."""
        self._stocks.took(account, self.meter, decision._mark, cost)
        known, now = self._stocks.numbers.of(self.meter, account), time.monotonic()
        if (known.report is None or decision._room < known.low) and not known.is_refused(1, now):
            self._stocks.fill(FillRequest(account, self.meter, 0, self.plan))

    def shown(self, account: str, decision: Decision) -> Decision:
        """As clients see it."""
        known = self._stocks.numbers.find(self.meter, account)
        if known is not None and now_unknown(known.unknown_until) and not decision:
            return decided(CLOSED, False, 0, 1, -1, 0, 0, False, NOWHERE)
        return shown(decision, known, self.now())

    def unavailable(self) -> Decision:
        """By ``on_failure``."""
        limit = self.limit
        if self.open:
            return decided(limit, True, MOST_UNITS, 1, 0, 0, 0, False, NOWHERE, True)
        return decided(limit, False, 0, 1, SECOND, SECOND, 0, False, NOWHERE, True)

    # For threads -------------------------------------------------------------------------------

    def hit(self, key: str, cost: int) -> Decision:
        return self._store.hit_each([(self, key, cost)])[0]

    def attempt(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        return self._store.hit_each([(self, key, cost)], attempt=True)[0]

    def peek(self, key: str, cost: int) -> Decision:
        self._store.start()
        return flows.run(hit_flow([(self, key, cost)], Peek()), self._store.do)[0]

    def charge(self, key: str, cost: int) -> None:
        raise StoreError("a quota cannot be charged for more than it has: use Ledger.settle")

    def refund(self, key: str, cost: int, mark: int = NO_MARK, kept: int = 0) -> None:
        account, units = check_key(key), check_cost(cost)
        if mark == NO_MARK:
            mark, units = _newest(self.inner.peek(account, MOST_UNITS), units, self.now())
        if mark > NO_MARK and units:
            self.inner.refund(account, units, mark)
            self._stocks.gave_back(account, self.meter, mark, units)

    def reset(self, key: str) -> None:
        """Nothing: what was spent of a quota stays spent. `Ledger.adjust` corrects it."""

    def clear(self) -> None:
        """Nothing, either."""

    # For coroutines ------------------------------------------------------------------------------

    def submit(self, verb: str, *args: Any) -> Awaitable[Any]:
        if verb in ("hit", "attempt"):
            key, cost = args[:2]
            return self._hit(key, cost, verb == "attempt")
        if verb == "peek":
            return self._peek(*args)
        if verb == "refund":
            # It happens even if its task is cancelled.
            future = asyncio.ensure_future(self._refund(*args))
            _unattended.add(future)
            future.add_done_callback(_unattended.discard)
            return asyncio.shield(future)
        return super().submit(verb, *args)

    async def _hit(self, key: str, cost: int, attempt: bool) -> Decision:
        return (await self._store.hit_each_async([(self, key, cost)], attempt))[0]

    async def _peek(self, key: str, cost: int) -> Decision:
        self._store.start()
        flow = hit_flow([(self, key, cost)], Peek())
        return (await flows.run_async(flow, self._store.do_async))[0]

    async def _refund(self, key: str, cost: int, mark: int = NO_MARK, kept: int = 0) -> None:
        account, units = check_key(key), check_cost(cost)
        if mark == NO_MARK:
            look: Decision = await self.inner.submit("peek", account, MOST_UNITS)
            mark, units = _newest(look, units, self.now())
        if mark > NO_MARK and units:
            await self.inner.submit("refund", account, units, mark)
            self._stocks.gave_back(account, self.meter, mark, units)


def now_unknown(until: float) -> bool:
    return until > 0 and time.monotonic() < until


def _newest(look: Decision, units: int, now: int) -> tuple[int, int]:
    """The stock that units go back to whose own is not known, and how many can."""
    state = stock_row.state_of(look, now)
    return (state.opened, min(units, state.spent)) if state is not None else (NOWHERE, 0)


def hit_flow(wanted: list[Item], kind: Hit | Peek) -> Generator[Step, Any, list[Decision]]:
    """Decide on limits and quotas together. ``kind`` says whether anything is taken."""
    answers: dict[int, Decision] = {}  # of quotas that cannot be asked, by their place
    for fills_left in reversed(range(_FILLS + 1)):
        decisions = yield from _ask(wanted, kind, answers)
        if all(decisions):
            if isinstance(kind, Hit):
                _write_down(wanted, decisions, answers)
            break
        refused = [at for at, decision in enumerate(decisions) if not decision]
        if not fills_left or any(not isinstance(wanted[at][0], QuotaCounters) for at in refused):
            break
        for at in refused:
            if decisions[at].degraded:
                answers[at] = wanted[at][0].unavailable()  # type: ignore[attr-defined]
        if not answers:
            yield from _fill(wanted, decisions, refused, answers)
        if not all(answers.values()):
            for at, answer in answers.items():
                decisions[at] = answer
            break
    return [
        counters.shown(key, decision)
        if isinstance(counters, QuotaCounters) and not decision.degraded
        else decision
        for (counters, key, _), decision in zip(wanted, decisions, strict=True)
    ]


def _ask(
    wanted: list[Item], kind: Hit | Peek, answers: dict[int, Decision]
) -> Generator[Step, Any, list[Decision]]:
    """Have the store decide, on all but those that have an answer."""
    places: dict[tuple[Counters, str], int] = {}
    items: list[Item] = []
    where: list[int | None] = []
    for at, (counters, key, cost) in enumerate(wanted):
        if at in answers:
            where.append(None)
            continue
        inner = counters.inner if isinstance(counters, QuotaCounters) else counters
        place = places.setdefault((inner, key), len(items))
        if place == len(items):
            items.append((inner, key, cost))
        else:  # the same quota twice, with different plans for new accounts
            items[place] = inner, key, items[place][2] + cost
        where.append(place)
    kind.items = items
    decisions: list[Decision] = yield kind
    return [answers[at] if place is None else decisions[place] for at, place in enumerate(where)]


def _fill(
    wanted: list[Item], decisions: list[Decision], refused: list[int], answers: dict[int, Decision]
) -> Generator[Step, Any, None]:
    """Ask the ledger for more. What cannot be asked gets its answer by ``on_failure``."""
    requests: dict[int, FillRequest] = {}
    costs = Counter[tuple[str, str]]()
    for at in refused:
        counters, key, cost = wanted[at]
        assert isinstance(counters, QuotaCounters)
        costs[counters.meter, key] += cost
    for at in refused:
        counters, key, _ = wanted[at]
        assert isinstance(counters, QuotaCounters)
        request = counters.request(key, costs[counters.meter, key])
        if request is not None:
            requests[at] = request
        else:
            answers[at] = decisions[at]
    if len(requests) < len(refused):
        return  # one of them is empty: the others need not be filled
    rooms = yield Fill(list(requests.values()))
    for at, room in zip(requests, rooms, strict=True):
        if isinstance(room, Exception):
            answers[at] = wanted[at][0].unavailable()  # type: ignore[attr-defined]
        elif room < requests[at].cost:
            answers[at] = decisions[at]


def _write_down(
    wanted: list[Item], decisions: list[Decision], answers: dict[int, Decision]
) -> None:
    for at, ((counters, key, cost), decision) in enumerate(zip(wanted, decisions, strict=True)):
        if at not in answers and isinstance(counters, QuotaCounters) and decision._mark > NO_MARK:
            counters.took(key, cost, decision)
