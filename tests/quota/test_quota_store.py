"""Quotas in a store: on every store and both databases, whatever is lost when."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import MemoryStore, SharedMemoryStore
from penstock.limits import Limit
from penstock.quota import Ledger
from penstock.quota.databases.base import Interrupted
from penstock.quota.quota_store import QuotaStore
from penstock.quota.stock_operations import chunk
from penstock.stores.base import Counters, Store
from penstock.stores.redis import RedisStore
from penstock.testing import FakeClock
from stores.redis_server import wait_until

PLANS = {"free": {"requests": "1000/month"}, "pro": {"requests": "100000/month"}}


@pytest.fixture(params=["memory", "shared", "redis"])
def make_inner(
    request: pytest.FixtureRequest, tmp_path: Path, prefix: str
) -> Iterator[Callable[[], Store]]:
    """Makes stores: as after a restart of the process, so a new MemoryStore is empty."""
    stores: list[Store] = []

    def make() -> Store:
        store: Store
        if request.param == "memory":
            store = MemoryStore()
        elif request.param == "shared":
            store = SharedMemoryStore(tmp_path / "shared", max_keys=1000)
        else:
            url = request.getfixturevalue("redis_url")
            store = RedisStore(url, prefix=prefix, deadline="60s")
        stores.append(store)
        return store

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def books(url: str) -> Iterator[Ledger]:
    """A ledger by the time of day, as the stores are."""
    with Ledger(url, plans=PLANS) as ledger:
        yield ledger
        assert ledger.reconcile().differences == ()


@pytest.fixture
def make(books: Ledger, tmp_path: Path) -> Iterator[Callable[..., QuotaStore]]:
    stores: list[QuotaStore] = []

    def make(inner: Store | None = None, **options: Any) -> QuotaStore:
        options = {"settle": "1h", "journal": tmp_path / "journal", "deadline": "60s", **options}
        stores.append(QuotaStore(books, inner, **options))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def store(make: Callable[..., QuotaStore], make_inner: Callable[[], Store]) -> QuotaStore:
    return make(make_inner())


def spent(books: Ledger, account: str = "acme") -> tuple[int, int]:
    """Units that were spent, and that are held."""
    balance = books.balance(account)["requests"]
    return balance.spent, balance.held


def hits(counters: Counters, count: int, cost: int = 1, account: str = "acme") -> int:
    return sum(bool(counters.hit(account, cost)) for _ in range(count))


def lose(store: QuotaStore) -> None:
    """Everything that the store had is gone, as after a restart of Redis."""
    store.inner.clear()


def idle(store: QuotaStore) -> None:
    """Wait until no stock is being filled."""
    wait_until(lambda: not store.stocks._filling, "stocks are filled", 60)


def kill(store: QuotaStore) -> None:
    """The process is gone: nobody settles, and its lock on the journal is free."""
    store.settling.stop()
    store._closed = True
    store.stocks.journal.close()


def test_units_are_spent_and_settled(books: Ledger, store: QuotaStore) -> None:
    books.open("acme", "free")
    counters = store.meter_counters("requests")
    assert hits(counters, 120) == 120
    assert spent(books)[0] == 0
    store.settle()
    used, held = spent(books)
    assert used == 120
    assert 0 < held <= 200
    store.settle()
    assert spent(books)[0] == 120


def test_never_more_than_the_quota_and_all_of_it(books: Ledger, store: QuotaStore) -> None:
    books.open("acme", "free")
    counters = store.meter_counters("requests")
    assert hits(counters, 300, cost=7) == 142
    assert hits(counters, 300) == 1000 - 142 * 7
    store.settle()
    assert spent(books) == (1000, 0)


def test_what_clients_see(books: Ledger, store: QuotaStore) -> None:
    books.open("acme", "free")
    counters = store.meter_counters("requests")
    decision = counters.hit("acme", 1)
    idle(store)
    assert (decision.limit.amount, decision.limit.period_ns) == (1000, 30 * 86_400 * 10**9)
    assert decision.remaining == 999
    ends = books.balance("acme")["requests"].period.ends.timestamp()  # type: ignore[union-attr]
    assert abs(decision.reset_after - (ends - counters.now() / 1e9)) < 60
    assert counters.peek("acme", 1).remaining == 999
    assert hits(counters, 1500) == 999
    refused = counters.hit("acme", 1)
    assert (bool(refused), refused.remaining, refused.limit.amount) == (False, 0, 1000)
    assert abs(refused.retry_after - (ends - counters.now() / 1e9)) < 60  # type: ignore[operator]


def test_a_grant_is_available_soon(books: Ledger, store: QuotaStore) -> None:
    books.open("acme")
    counters = store.meter_counters("requests")
    refused = counters.hit("acme", 1)
    assert not refused
    assert refused.retry_after is None  # nothing renews it
    books.grant("acme", 50, meter="requests", ref="invoice-1")
    assert not counters.hit("acme", 1)  # it was asked a moment ago
    store.stocks.numbers.of("requests", "acme").refused_until = 0.0  # a second later
    assert hits(counters, 80) == 50


def test_an_unknown_account_is_refused_or_opened(books: Ledger, store: QuotaStore) -> None:
    refused = store.meter_counters("requests").hit("nobody", 1)
    assert (bool(refused), refused.limit.amount, refused.retry_after) == (False, 0, None)
    assert store.meter_counters("requests", "free").hit("somebody", 1)
    assert books.balance("somebody").account.plan == "free"
    assert not store.meter_counters("requests", "no such plan").hit("other", 1)


def test_limits_and_quotas_pass_together_or_not_at_all(books: Ledger, store: QuotaStore) -> None:
    books.open("acme", "free")
    quota, limit = store.meter_counters("requests"), store.counters(Limit(3, "hour"))
    wanted = [(limit, "k", 1), (quota, "acme", 1)]
    assert [all(store.hit_each(wanted)) for _ in range(5)] == [True] * 3 + [False] * 2
    store.settle()
    assert spent(books)[0] == 3
    # The other way round: an empty quota takes nothing of the limit.
    books.open("poor")
    other = store.counters(Limit(5, "hour"))
    assert not all(store.hit_each([(other, "k", 1), (quota, "poor", 1)]))
    assert other.peek("k", 1).remaining == 5


def test_two_plans_for_one_account_are_one_quota(books: Ledger, store: QuotaStore) -> None:
    books.open("acme")
    books.grant("acme", 10, meter="requests", ref="1")
    one, other = (store.meter_counters("requests", plan) for plan in ("free", "pro"))
    assert all(store.hit_each([(one, "acme", 3), (other, "acme", 4)]))
    assert not all(store.hit_each([(one, "acme", 2), (other, "acme", 2)]))
    store.settle()
    assert spent(books)[0] == 7


def test_units_that_are_given_back_are_not_settled(books: Ledger, store: QuotaStore) -> None:
    books.open("acme", "free")
    counters = store.meter_counters("requests")
    decision = counters.hit("acme", 10)
    counters.refund("acme", 4, decision._mark, 6)
    counters.refund("acme", 2)
    counters.refund("acme", 1000, -2)  # of a decision that took nothing
    idle(store)
    store.settle()
    assert spent(books)[0] == 4
    assert counters.hit("acme", 1).remaining == 995


def test_units_given_back_after_they_were_settled(
    books: Ledger, make: Callable[..., QuotaStore]
) -> None:
    books.open("acme", "free")
    store = make(MemoryStore())
    counters = store.meter_counters("requests")
    counters.hit("acme", 10)
    store.settle()
    counters.refund("acme", 10)
    counters.hit("acme", 3)
    store.settle()
    assert spent(books)[0] == 10
    store.close()
    balance = books.balance("acme")["requests"]
    assert (balance.available, balance.held) == (997, 0)


# What is lost --------------------------------------------------------------------------------


def test_a_killed_process_loses_nothing_and_counts_nothing_twice(
    books: Ledger, make: Callable[..., QuotaStore], make_inner: Callable[[], Store]
) -> None:
    books.open("acme", "free")
    total = 0
    for number in range(4):
        store = make(make_inner())
        total += hits(store.meter_counters("requests"), 30 + number)
        if number % 2:
            store.settle()
            total += hits(store.meter_counters("requests"), 5)
        kill(store)
    last = make(make_inner())
    for _ in range(3):
        last.settle()
    assert spent(books)[0] == total
    # And everything that is left can still be spent.
    assert hits(last.meter_counters("requests"), 1100) == 1000 - total
    last.settle()
    assert spent(books) == (1000, 0)


def test_shared_memory_that_is_gone(
    books: Ledger, make: Callable[..., QuotaStore], tmp_path: Path
) -> None:
    """A file that was deleted and made anew: what the old one held goes back."""
    books.open("acme", "free")
    path = tmp_path / "shared"
    with SharedMemoryStore(path, max_keys=1000) as first:
        one, other = make(first), make(first)
        counts = [hits(store.meter_counters("requests"), 30) for store in (one, other)]
        assert counts == [30, 30]
        path.unlink()
        with SharedMemoryStore(path, max_keys=1000) as second:
            last = make(second)
            kill(one)
            last.settle()  # the other one still has the old file
            assert 30 <= spent(books)[0] <= 60
            assert spent(books)[1] > 0
            total = 60 + hits(other.meter_counters("requests"), 5)
            kill(other)
            last.settle()
            assert spent(books) == (total, 0)
            assert hits(last.meter_counters("requests"), 2000) == 1000 - total
            last.close()


def test_a_killed_process_of_several(
    books: Ledger, make: Callable[..., QuotaStore], make_inner: Callable[[], Store]
) -> None:
    books.open("acme", "free")
    one, other = make(make_inner()), make(make_inner())
    total = hits(one.meter_counters("requests"), 40) + hits(other.meter_counters("requests"), 50)
    kill(one)
    for _ in range(3):
        other.settle()
    assert spent(books)[0] == total == 90
    total += hits(other.meter_counters("requests"), 2000)
    other.settle()
    assert spent(books) == (1000, 0)
    assert total == 1000


def test_losing_the_store_costs_nothing_that_was_spent(
    books: Ledger, make: Callable[..., QuotaStore], make_inner: Callable[[], Store]
) -> None:
    books.open("acme", "free")
    one, other = make(make_inner()), make(make_inner())
    quotas = [store.meter_counters("requests") for store in (one, other)]
    total = 0
    for number in range(4):
        total += sum(hits(quota, 20) for quota in quotas)
        if number == 2:
            one.settle()
        for store in (one, other):
            lose(store)
    for _ in range(3):
        for store in (one, other):
            store.settle()
    assert spent(books) == (160, 0)
    total += hits(quotas[0], 2000)
    assert total == 1000


def test_a_store_that_came_back_with_an_older_state(
    books: Ledger, make: Callable[..., QuotaStore], make_inner: Callable[[], Store]
) -> None:
    books.open("acme", "free")
    store = make(make_inner())
    counters = store.meter_counters("requests")
    counters.hit("acme", 5)
    mark = counters.peek("acme", 1)._mark
    counters.inner.refund("acme", 5, mark)  # type: ignore[attr-defined]  # forgets five
    for _ in range(3):
        store.settle()
    assert counters.hit("acme", 1)._mark != mark
    store.settle()
    assert spent(books)[0] == 6


def test_the_ledger_is_away_for_an_hour(
    tmp_path: Path, make_inner: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a file that is not there for a while: what is in the stock goes on."""
    url = f"sqlite:///{tmp_path}/away.db"
    with Ledger(url, plans=PLANS) as books:
        books.open("acme", "pro")
        options: dict[str, Any] = {"settle": "1h", "journal": tmp_path / "j", "deadline": "60s"}
        store = QuotaStore(books, make_inner(), **options)
        counters = store.meter_counters("requests")
        assert counters.hit("acme", 1)
        store.settle()
        away = threading.Event()
        away.set()
        begin = type(books._core.database).writing

        def writing(database: Any, until: float) -> Any:
            if away.is_set():
                raise Interrupted("away")
            return begin(database, until)

        monkeypatch.setattr(type(books._core.database), "writing", writing)
        passed = hits(counters, 3000)
        assert 500 < passed < 3000  # what was in the stock
        refused = counters.hit("acme", 1)
        assert (refused.degraded, refused.retry_after) == (True, 1.0)
        free = store.meter_counters("requests", on_failure="open").hit("acme", 1)
        assert (bool(free), free.degraded) == (True, True)
        for _ in range(5):
            store.settle()
        assert not store.ledger_up
        assert store.unsettled == passed
        away.clear()
        store.settle()
        assert (store.ledger_up, store.unsettled) == (True, 0)
        assert books.balance("acme")["requests"].spent == passed + 1
        store.close()
        assert books.reconcile()


def test_a_new_period_has_a_stock_of_its_own(sqlite_url: str, tmp_path: Path) -> None:
    clock = FakeClock(1_705_320_000 * 10**9)  # noon on January 15, 2024
    options: dict[str, Any] = {"settle": "1h", "journal": tmp_path / "j", "deadline": "60s"}
    with Ledger(sqlite_url, plans=PLANS, clock=clock) as books:
        books.open("acme", "free")
        store = QuotaStore(books, MemoryStore(clock=clock), **options)
        counters = store.meter_counters("requests")
        assert hits(counters, 10) == 10
        idle(store)
        clock.advance(16.4 * 86_400)  # shortly before the end
        assert counters.hit("acme", 1)
        clock.advance(0.2 * 86_400)
        decision = counters.hit("acme", 3)
        idle(store)
        assert decision.remaining == 997
        for _ in range(3):
            store.settle()
        january, february = books.periods("acme", meter="requests")
        assert (january.used, february.used) == (11, 3)
        (hold,) = books.holds("acme")
        assert books.balance("acme")["requests"].available == 997 - hold.held
        assert hits(counters, 2000) == 997
        store.close()
        assert books.reconcile()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_a_journal_of_its_own(
    books: Ledger, make: Callable[..., QuotaStore], tmp_path: Path
) -> None:
    books.open("acme", "free")
    with SharedMemoryStore(tmp_path / "shared", max_keys=1000) as shared:
        store = make(shared)
        counters = store.meter_counters("requests")
        assert hits(counters, 10) == 10
        idle(store)
        pid = os.fork()
        if pid == 0:
            os._exit(hits(counters, 7))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert hits(counters, 3) == 3
        for _ in range(2):
            store.settle()
        assert spent(books)[0] == 20
        store.close()


def test_closing_gives_the_units_of_memory_back(
    books: Ledger, make: Callable[..., QuotaStore], tmp_path: Path
) -> None:
    books.open("acme", "free")
    store = make(MemoryStore())
    hits(store.meter_counters("requests"), 10)
    store.close()
    assert spent(books) == (10, 0)
    assert [path for path in (tmp_path / "journal").rglob("*") if path.is_file()] == []


def test_an_event_says_when_a_quota_is_nearly_empty(books: Ledger, store: QuotaStore) -> None:
    books.open("acme", "free")
    events: list[Any] = []
    books.subscribe(events.append)
    counters = store.meter_counters("requests")
    for count in (890, 10, 5, 95):
        hits(counters, count)
        store.settle()
    near = [(e.account, e.meter, e.remaining, e.amount) for e in events]
    assert near == [("acme", "requests", 100, 1000)]


# Threads and tasks ---------------------------------------------------------------------------


def test_threads_never_spend_more(books: Ledger, store: QuotaStore) -> None:
    books.open("acme", "free")
    counters = store.meter_counters("requests")
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda: counts.append(hits(counters, 300))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) + hits(counters, 1000) == 1000
    store.settle()
    assert spent(books) == (1000, 0)


def test_tasks_never_spend_more_and_cancelled_ones_nothing(
    books: Ledger, store: QuotaStore
) -> None:
    books.open("acme", "free")
    counters, limit = store.meter_counters("requests"), store.counters(Limit(10**6, "hour"))

    async def main() -> int:
        counted = 0
        for number in range(20):
            tasks = [asyncio.create_task(_one()) for _ in range(50)]
            await asyncio.sleep(0)
            for task in tasks[: number % 7]:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            counted += sum(outcome is True for outcome in outcomes)
        close = getattr(store.inner, "close_async", None)
        if close is not None:
            await close()
        return counted

    async def _one() -> bool:
        return all(await store.hit_each_async([(counters, "acme", 1), (limit, "k", 1)]))

    passed = asyncio.run(main())
    store.settle()
    assert spent(books)[0] <= 1000
    assert passed == spent(books)[0]


def test_sizes_of_chunks() -> None:
    assert chunk(short=1, pace=0, available=1_000_000) == 1000
    assert chunk(short=0, pace=5000, available=1_000_000) == 5000
    assert chunk(short=0, pace=5000, available=1000) == 100
    assert chunk(short=300, pace=0, available=1000) == 300
    assert chunk(short=1, pace=0, available=5) == 1
    assert chunk(short=0, pace=10, available=5) == 0


def test_it_says_what_it_takes() -> None:
    with pytest.raises(TypeError, match="takes a Ledger and a store"):
        QuotaStore("sqlite:///quota.db")  # type: ignore[arg-type]
