"""The events of leases: when one begins and ends, and when they cannot be renewed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("redis")

from penstock import Limit, Limiter
from penstock.events import (
    Event,
    LeaseExpired,
    LeaseGranted,
    LeaseReturned,
    LeasesCutOff,
    LeasesRestored,
)
from penstock.stores.leased import LeasedStore
from penstock.stores.redis import RedisStore
from stores.leased.leasing import heat
from stores.redis_server import Server, wait_until

LIMIT = "2000/hour"


def leasing(url: str, prefix: str, **options: Any) -> tuple[LeasedStore, list[Event]]:
    """A store, and all events of its leases."""
    store = LeasedStore(
        RedisStore(url, prefix=prefix, deadline="60s", connect_timeout="60s", **options)
    )
    events: list[Event] = []
    store.subscribe(lambda event: events.append(event) if "Lease" in repr(event) else None)
    return store, events


def test_a_lease_begins_and_ends_once(redis_url: str, prefix: str) -> None:
    store, events = leasing(redis_url, prefix)
    with store:
        heat(store, LIMIT)
        limiter = Limiter(LIMIT, store=store)
        for _ in range(600):
            limiter.hit("k")  # renewals are no events
        store.give_back()
        granted, returned = events
        assert isinstance(granted, LeaseGranted)
        assert isinstance(returned, LeaseReturned)
        assert (granted.limit, granted.key) == (Limit.parse(LIMIT), "k")
        assert 0 < granted.units <= store.stats().granted
        assert returned.units == store.stats().returned > 0
        assert granted.store == returned.store == store.name


def test_a_lease_that_is_not_renewed_in_time_expires(redis_url: str, prefix: str) -> None:
    store, events = leasing(redis_url, prefix)
    with store:
        lease = heat(store, LIMIT)
        renewal = store._renewal
        thread, renewal._thread = renewal._thread, None  # which ends it
        renewal._wake.set()
        assert thread is not None
        thread.join(60)
        held, before = lease.available, len(events)
        lease.deadline = 1  # long ago
        renewal._trade([lease])
        expired, *rest = events[before:]
        assert expired == LeaseExpired(store.name, Limit.parse(LIMIT), "k", held)
        assert store.stats().lapsed == held
        # What it got instead is a new lease.
        assert [type(event) for event in rest] == [LeaseGranted]


def test_units_that_the_server_disowns_are_lost(redis_url: str, prefix: str) -> None:
    store, events = leasing(redis_url, prefix)
    with store:
        lease = heat(store, LIMIT)
        renewal = store._renewal
        thread, renewal._thread = renewal._thread, None
        renewal._wake.set()
        assert thread is not None
        thread.join(60)
        lease.granted += 10**6  # so much cannot have been granted
        held = lease.available
        renewal._trade([lease])
        assert events[-1] == LeaseExpired(store.name, Limit.parse(LIMIT), "k", held)
        assert store.stats().lapsed == held


def test_without_a_server_leases_are_cut_off_until_it_is_back(
    own_server: Callable[..., Server], prefix: str
) -> None:
    server = own_server()
    store, events = leasing(server.url, prefix, on_failure="closed")
    with store:
        heat(store, "1000/second")
        limiter = Limiter("1000/second", store=store)
        server.kill()

        def seen(kind: type[Event]) -> Callable[[], bool]:
            def look() -> bool:
                limiter.hit("k")
                return any(isinstance(event, kind) for event in events)

            return look

        wait_until(seen(LeasesCutOff), "it is cut off", 60)
        wait_until(lambda: store.stats().failures > 2, "it tries again", 60)
        server.restart()
        wait_until(seen(LeasesRestored), "it leases again", 60)
        store.give_back()
    cut, *_ = (event for event in events if isinstance(event, LeasesCutOff))
    restored, *_ = (event for event in events if isinstance(event, LeasesRestored))
    assert cut.reason
    assert restored.seconds > 0
    # One each, however often it was tried.
    assert sum(isinstance(event, LeasesCutOff) for event in events) == 1


def test_who_unsubscribes_hears_no_more(redis_url: str, prefix: str) -> None:
    store, _ = leasing(redis_url, prefix)
    heard: list[Event] = []
    with store:
        store.subscribe(heard.append)
        store.unsubscribe(heard.append)
        heat(store, LIMIT)
        store.give_back()
    assert heard == []


def test_a_hook_may_give_leases_back(redis_url: str, prefix: str) -> None:
    """It is called in the thread that renews."""
    store, events = leasing(redis_url, prefix)
    with store:
        store.subscribe(lambda event: store.give_back() if not store.stats().returned else None)
        limiter = Limiter(LIMIT, store=store)

        def returned() -> bool:
            for _ in range(12):
                limiter.hit("k")
            return any(isinstance(event, LeaseReturned) for event in events)

        wait_until(returned, "a lease that goes back at once", 60)


def test_a_hook_that_fails_breaks_nothing(redis_url: str, prefix: str) -> None:
    store, events = leasing(redis_url, prefix)

    def fails(event: Event) -> None:
        raise RuntimeError("no")

    with store:
        store.subscribe(fails)
        heat(store, LIMIT)
        store.give_back()
        assert store.stats().leases == 0
        assert len(events) == 2
