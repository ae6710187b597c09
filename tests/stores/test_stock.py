"""Stocks in every store: what the ledger puts in can be spent once, and nothing else can."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import MemoryStore, SharedMemoryStore
from penstock.limits import STOCK, Limit, stock_limit
from penstock.quota import stock_row
from penstock.quota.stock_row import RowState
from penstock.stores.base import Counters, Store
from penstock.stores.redis import RedisStore
from penstock.testing import FakeClock

HOUR = 3600 * 10**9


@pytest.fixture(params=["memory", "shared", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> Iterator[Store]:
    store: Store
    if request.param == "memory":
        store = MemoryStore()
    elif request.param == "shared":
        store = SharedMemoryStore(tmp_path / "stock", max_keys=1000)
    else:
        url = request.getfixturevalue("redis_url")
        store = RedisStore(url, prefix=prefix, deadline="60s")
    yield store
    store.close()


@pytest.fixture
def counters(store: Store) -> Counters:
    return store.counters(stock_limit("closed"), "requests")


def opened(counters: Counters, granted: int, lasts: int = HOUR, account: str = "acme") -> RowState:
    """A new stock."""
    name = stock_row.new_name(counters.now())
    stock_row.open_row(counters, account, name)
    stock_row.put_in(counters, account, name, granted, counters.now() + lasts)
    state = stock_row.read(counters, account)
    assert state is not None
    assert state[:3] == (name, granted, 0)
    return state


def test_a_key_that_was_never_seen_has_nothing(counters: Counters) -> None:
    assert stock_row.read(counters, "acme") is None
    assert not counters.hit("acme", 1)
    assert stock_row.read(counters, "acme") is None


def test_units_are_spent_once(counters: Counters) -> None:
    state = opened(counters, 10)
    assert abs(state.ends - time.time_ns() - HOUR) < 60 * 10**9
    decision = counters.hit("acme", 7)
    assert (bool(decision), decision.remaining, decision._mark) == (True, 3, state.opened)
    refused = counters.hit("acme", 4)
    assert (bool(refused), refused.remaining) == (False, 3)
    assert counters.hit("acme", 3).last
    assert not counters.hit("acme", 1)
    assert stock_row.read(counters, "acme")[:3] == (state.opened, 10, 10)  # type: ignore[index]


def test_what_is_put_in_is_a_total_so_it_can_be_repeated_and_come_late(counters: Counters) -> None:
    state = opened(counters, 10)
    for total in (25, 25, 15, 10):
        stock_row.put_in(counters, "acme", state.opened, total, state.ends)
    assert stock_row.read(counters, "acme")[:3] == (state.opened, 25, 0)  # type: ignore[index]


def test_a_second_opening_changes_nothing(counters: Counters) -> None:
    state = opened(counters, 10)
    other = stock_row.new_name(counters.now())
    stock_row.open_row(counters, "acme", other)
    stock_row.put_in(counters, "acme", other, 99, state.ends)
    assert stock_row.read(counters, "acme")[:3] == (state.opened, 10, 0)  # type: ignore[index]


def test_units_go_back_to_the_stock_that_they_came_from(counters: Counters) -> None:
    state = opened(counters, 10)
    mark = counters.hit("acme", 5)._mark
    counters.refund("acme", 2, mark)
    counters.refund("acme", 2, mark + 1000)  # of another stock
    assert stock_row.read(counters, "acme")[:3] == (state.opened, 10, 3)  # type: ignore[index]
    counters.reset("acme")
    later = opened(counters, 4)
    counters.refund("acme", 3, mark)
    assert stock_row.read(counters, "acme")[:3] == (later.opened, 4, 0)  # type: ignore[index]


def test_a_group_takes_from_all_or_from_none(store: Store, counters: Counters) -> None:
    opened(counters, 2)
    limit = store.counters(Limit(1, "hour"))
    wanted = [(counters, "acme", 1), (limit, "acme", 1)]
    assert [bool(decision) for decision in store.hit_each(wanted)] == [True, True]
    assert [bool(decision) for decision in store.hit_each(wanted)] == [True, False]
    assert stock_row.read(counters, "acme")[2] == 1  # type: ignore[index]


def test_a_stock_ends(clock_counters: tuple[FakeClock, Counters]) -> None:
    clock, counters = clock_counters
    first = opened(counters, 10)
    clock.advance(3599.999)
    assert counters.hit("acme", 1)
    clock.advance(0.001)
    assert not counters.hit("acme", 1)
    assert stock_row.read(counters, "acme") is None
    second = opened(counters, 3)
    assert second.opened != first.opened
    assert not counters.hit("acme", 4)


def test_a_stock_that_was_opened_and_never_given_anything_ends(
    clock_counters: tuple[FakeClock, Counters],
) -> None:
    clock, counters = clock_counters
    name = stock_row.new_name(counters.now())
    stock_row.open_row(counters, "acme", name)
    clock.advance(60)
    stock_row.put_in(counters, "acme", name, 10, counters.now() + HOUR)
    assert not counters.hit("acme", 1)


@pytest.fixture(params=["memory", "shared"])
def clock_counters(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[FakeClock, Counters]]:
    clock = FakeClock(1_705_320_000 * 10**9)
    store: Store = MemoryStore(clock=clock)
    if request.param == "shared":
        store = SharedMemoryStore(tmp_path / "stock", max_keys=1000, clock=clock)
    yield clock, store.counters(stock_limit(), "requests")
    store.close()


@pytest.mark.parametrize("seed", range(3))
def test_random_steps_agree_with_a_model(counters: Counters, seed: int) -> None:
    chance = random.Random(seed)
    rows: dict[str, list[int]] = {}  # name, granted, spent
    names: list[int] = []
    for _ in range(150):
        account = chance.choice("ab")
        step = chance.choice(("open", "put", "hit", "hit", "refund", "reset"))
        row = rows.get(account)
        if step == "open":
            names.append(stock_row.new_name(counters.now()))
            stock_row.open_row(counters, account, names[-1])
            rows.setdefault(account, [names[-1], 0, 0])
        elif step == "put" and names:
            name, total = (
                chance.choice([row[0] if row else 1000, names[-1]]),
                chance.randrange(1, 30),
            )
            stock_row.put_in(counters, account, name, total, counters.now() + HOUR)
            if row is not None and row[0] == name:
                row[1] = max(row[1], total)
        elif step == "hit":
            cost = chance.randrange(1, 8)
            fits = row is not None and row[1] - row[2] >= cost
            assert bool(counters.hit(account, cost)) == fits
            if fits and row is not None:
                row[2] += cost
        elif step == "refund" and names:
            name, cost = chance.choice([row[0] if row else 1000, names[0]]), chance.randrange(1, 8)
            counters.refund(account, cost, name)
            if row is not None and row[0] == name:
                row[2] = max(0, row[2] - cost)
        elif step == "reset" and chance.random() < 0.3:
            counters.reset(account)
            rows.pop(account, None)
        state = stock_row.read(counters, account)
        expected = rows.get(account)
        assert (list(state[:3]) if state is not None else None) == expected


def test_nobody_can_write_such_a_limit() -> None:
    assert stock_limit().algorithm == STOCK
    assert stock_limit() == stock_limit() != stock_limit("open")
    with pytest.raises(ValueError, match="unknown algorithm"):
        Limit(5, "minute", algorithm="stock")
