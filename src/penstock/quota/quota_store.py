"""QuotaStore: a store in which rules can also take from the quotas of a ledger.

>>> store = QuotaStore(Ledger("sqlite:///quota.db"), RedisStore("redis://localhost"))
>>> gate = Gate.from_file("rules.yaml", store=store)

It passes everything on to the store that it wraps. The counters of a quota are a stock in that same
store, so a request takes from its limits and its quotas together, or from none of them. See
`stocks.py` for how a stock is filled and settled.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from penstock import flows
from penstock.decision import Decision
from penstock.durations import Duration, parse_duration
from penstock.events import Hook
from penstock.limits import Limit
from penstock.quota.errors import LedgerUnavailable
from penstock.quota.quota_counters import Fill, Hit, Item, Peek, QuotaCounters, Step, hit_flow
from penstock.quota.settling import Settling
from penstock.quota.stocks import Stocks
from penstock.quota.verbs import LedgerFlows
from penstock.stores.base import Counters, Store
from penstock.stores.memory import MemoryStore
from penstock.stores.url import as_store


class QuotaStore(Store):
    """A store with the quotas of a ledger beside its limits.

    What was spent is settled every ``settle``, and is in a journal in the folder ``journal`` until
    then: give processes that share a store the same folder, one that survives them. A request that
    finds no units waits for the ledger for at most ``deadline``. Close it when done: the ledger
    and the store stay open.
    """

    # Answers may have to wait for the ledger.
    waits = True

    def __init__(
        self,
        ledger: LedgerFlows,
        store: Store | str | None = None,
        *,
        settle: Duration = "10s",
        journal: str | os.PathLike[str] | None = None,
        deadline: Duration = "2s",
    ) -> None:
        if not isinstance(ledger, LedgerFlows):
            raise TypeError(
                f"a QuotaStore takes a Ledger and a store, not {ledger!r:.50}: write"
                " QuotaStore(Ledger('sqlite:///quota.db'), store)"
            )
        super().__init__()
        self.inner = as_store(store)
        self.on_failure = self.inner.on_failure
        self.can_lease = self.inner.can_lease
        self._deadline = parse_duration(deadline, "deadline") / 1e9
        folder = journal_folder(journal, ledger, self.inner)
        seconds = parse_duration(settle, "settle") / 1e9
        origin = origin_of(self.inner)
        self.stocks = Stocks(ledger, self.inner, folder, origin, seconds)
        self.settling = Settling(self.stocks)
        self._meters: dict[tuple[str, str | None, str], QuotaCounters] = {}
        self._pid = 0
        self._closed = False

    # Quotas ----------------------------------------------------------------------------------

    def meter_counters(
        self, meter: str, plan: str | None = None, on_failure: str = "closed"
    ) -> Counters:
        """The counters of a meter, by account. Unknown accounts are opened with the ``plan``."""
        key = meter, plan, on_failure
        counters = self._meters.get(key)
        if counters is None:
            with self._making:
                counters = self._meters.setdefault(
                    key, QuotaCounters(self, self.stocks, meter, plan, on_failure)
                )
        return counters

    def define_plans(self, plans: Mapping[str, Any]) -> None:
        """Write plans, as they are in rules, into the ledger before it is next used."""
        self.stocks.define_plans(
            {
                name: {
                    meter: allowance if isinstance(allowance, Mapping | str) else asdict(allowance)
                    for meter, allowance in plan.items()
                }
                for name, plan in plans.items()
            }
        )

    def start(self) -> None:
        """Begin to settle in the background. The first request does it, too."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self.settling.start()

    def settle(self) -> None:
        """Settle now, in this thread."""
        self.settling.round()

    @property
    def ledger_up(self) -> bool:
        """Whether the ledger answered when it was last asked."""
        return self.stocks.ledger_up

    @property
    def unsettled(self) -> int:
        """Units that were spent and that the ledger has not been told of, after the last round."""
        return self.settling.unsettled

    # Deciding --------------------------------------------------------------------------------

    def hit_each(self, wanted: list[Item], attempt: bool = False) -> list[Decision]:
        if not _has_quota(wanted):
            return self.inner.hit_each(wanted, attempt)
        self.start()
        return flows.run(hit_flow(wanted, Hit(attempt)), self.do)

    def hit_each_async(
        self, wanted: list[Item], attempt: bool = False
    ) -> Awaitable[list[Decision]]:
        if not _has_quota(wanted):
            return self.inner.hit_each_async(wanted, attempt)
        self.start()
        return flows.run_async(hit_flow(wanted, Hit(attempt)), self.do_async)

    def hit_groups(self, wanted: list[list[Item]]) -> list[list[Decision]]:
        if not any(_has_quota(group) for group in wanted):
            return self.inner.hit_groups(wanted)
        return super().hit_groups(wanted)

    def call_each(self, verb: str, calls: list[tuple[Counters, tuple[Any, ...]]]) -> list[Any]:
        if not any(isinstance(counters, QuotaCounters) for counters, _ in calls):
            return self.inner.call_each(verb, calls)
        return super().call_each(verb, calls)

    def do(self, step: Step) -> Any:
        """One step of a flow, for threads."""
        if isinstance(step, Fill):
            return [_outcome(self.stocks.fill(each), self._deadline) for each in step.requests]
        if isinstance(step, Peek):
            return [counters.peek(key, cost) for counters, key, cost in step.items]
        return self.inner.hit_each(step.items, step.attempt) if step.items else []

    async def do_async(self, step: Step) -> Any:
        """One step of a flow, for coroutines."""
        if isinstance(step, Fill):
            futures = [self.stocks.fill(each) for each in step.requests]
            return [await _outcome_async(future, self._deadline) for future in futures]
        if isinstance(step, Peek):
            return [await counters.submit("peek", key, cost) for counters, key, cost in step.items]
        return await self.inner.hit_each_async(step.items, step.attempt) if step.items else []

    # The store below ---------------------------------------------------------------------------

    def counters(self, limit: Limit, name: str | None = None) -> Counters:
        return self.inner.counters(limit, name)

    def counters_with(self, limit: Limit, lease: bool | int | None) -> Counters:
        return self.inner.counters_with(limit, lease)

    def release(self, limit: Limit) -> bool:
        return self.inner.release(limit)

    def forget(self, limit: Limit) -> bool:
        return self.inner.forget(limit)

    def clear(self) -> None:
        self.inner.clear()

    def subscribe(self, hook: Hook) -> None:
        """Call ``hook`` with every event, of the ledger and of the store."""
        self.stocks.ledger.subscribe(hook)
        subscribe: Callable[[Hook], None] | None = getattr(self.inner, "subscribe", None)
        if subscribe is not None:
            subscribe(hook)

    def unsubscribe(self, hook: Hook) -> None:
        """Stop calling ``hook``."""
        self.stocks.ledger.unsubscribe(hook)
        unsubscribe: Callable[[Hook], None] | None = getattr(self.inner, "unsubscribe", None)
        if unsubscribe is not None:
            unsubscribe(hook)

    def __getattr__(self, name: str) -> Any:
        """What else the store has: its name, its state, its clients."""
        if name == "inner" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def close(self) -> None:
        """Settle, and stop. The store and the ledger stay open: their owners close them.

        What cannot be settled now stays in the journal, for the next process.
        """
        if self._closed:
            return
        self._closed = True
        self.settling.stop()
        if self._pid == os.getpid():
            # The units in a MemoryStore end with this process: they go back to the ledger.
            self.settling.round(gone=isinstance(self.inner, MemoryStore))
        self.stocks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<QuotaStore {self.stocks.ledger.name} over {self.inner!r}>"


def _has_quota(wanted: list[Item]) -> bool:
    return any(isinstance(item[0], QuotaCounters) for item in wanted)


def _outcome(future: Future[int], deadline: float) -> int | Exception:
    try:
        return future.result(deadline)
    except TimeoutError:
        return LedgerUnavailable(f"the ledger did not answer within {deadline:g} s")
    except Exception as error:
        return error


async def _outcome_async(future: Future[int], deadline: float) -> int | Exception:
    try:
        # The future is shared with other requests: it must not be cancelled with this one.
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), deadline)
    except TimeoutError:
        return LedgerUnavailable(f"the ledger did not answer within {deadline:g} s")
    except Exception as error:
        return error


def journal_folder(
    journal: str | os.PathLike[str] | None, ledger: LedgerFlows, store: Store
) -> Path:
    """The folder for one ledger and one store: journals of others mean other stocks."""
    folder = Path(journal) if journal is not None else default_journal()
    return folder / _digest(f"{ledger.name}\0{_name(store)}")


def origin_of(store: Store) -> str:
    """Where stocks are: this process, a shared file, or what the store calls itself."""
    if isinstance(store, MemoryStore):
        return uuid.uuid4().hex
    identity: str | None = getattr(store, "identity", None)
    return _digest(identity or _name(store))


def _name(store: Store) -> str:
    return f"{getattr(store, 'name', type(store).__name__)}\0{getattr(store, 'prefix', '')}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def default_journal() -> Path:
    """Where journals are kept: a folder of this user that survives a restart of the machine."""
    return Path(f"/var/tmp/penstock-{os.geteuid()}/journal")
