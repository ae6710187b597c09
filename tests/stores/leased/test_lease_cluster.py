"""Leases in a cluster: a key's leases lie in the slot of its counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("redis")

from penstock import Limiter
from penstock.stores.leased import LeasedStore
from penstock.stores.redis import RedisStore
from stores.redis_server import wait_until

if TYPE_CHECKING:
    from stores.redis_cluster import Cluster

LIMIT = "1000/second burst 4000"
KEYS = [f"tenant:{number}" for number in range(8)]


@pytest.mark.parametrize("tag", [None, "all"])
def test_keys_in_several_slots_are_leased(cluster: Cluster, prefix: str, tag: str | None) -> None:
    places = ",".join(f"127.0.0.1:{port}" for port in cluster.ports[:2])
    redis = RedisStore(
        f"redis+cluster://{places}", prefix=prefix, tag=tag, deadline="60s", connect_timeout="60s"
    )
    with LeasedStore(redis) as store:
        limiter = Limiter(LIMIT, store=store)

        def are_leased() -> bool:
            for key in KEYS:
                for _ in range(12):
                    limiter.hit(key)
            stats = store.stats()
            return stats.leases == len(KEYS) and stats.decided_here > 0

        wait_until(are_leased, "all keys are leased", 60)
        assert store.stats().failures == 0
