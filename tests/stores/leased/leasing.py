"""What the tests of leases over a real server have in common."""

from __future__ import annotations

from typing import Any

from penstock import Limit, Limiter
from penstock.stores.leased import LeasedStore
from penstock.stores.leased.counters import LeasedCounters
from stores.redis_server import wait_until

LIMIT = "1000/second burst 2000"


def lease_of(store: LeasedStore, limit: str, key: str = "k") -> Any:
    counters = store.counters(Limit.parse(limit))
    assert isinstance(counters, LeasedCounters)
    return counters.leases.get(key)


def heat(store: LeasedStore, limit: str = LIMIT, key: str = "k") -> Any:
    """Hit until the key is leased; the lease, with units in hand."""
    limiter = Limiter(limit, store=store)

    def is_leased() -> bool:
        for _ in range(12):
            limiter.hit(key)
        lease = lease_of(store, limit, key)
        return lease is not None and lease.available > 4

    wait_until(is_leased, "a lease", 60)
    return lease_of(store, limit, key)
