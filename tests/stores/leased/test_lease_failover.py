"""A server that forgets grants: how much more may pass, and how ``replicas`` prevents it.

The limits take a day to fill, so that no unit comes back meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("redis")

import redis

from penstock import Limiter
from penstock.events import Event, LeasesCutOff, LeasesRestored
from penstock.stores.leased import LeasedStore
from penstock.stores.redis import RedisStore
from stores.leased.leasing import heat
from stores.proxy import Proxy
from stores.redis_server import Server, wait_until

if TYPE_CHECKING:
    from stores.redis_cluster import Cluster
    from stores.redis_sentinel import SentinelSetup

pytestmark = pytest.mark.realtime
BURST = 1000
LIMIT = f"{BURST}/day"
Start = Callable[..., Server]


def leasing(url: str, prefix: str, replicas: int = 0) -> LeasedStore:
    # A deadline of a minute, and no circuit breaker: every hit is decided by a server.
    inner = RedisStore(url, prefix=prefix, on_failure="closed", deadline="2s")
    return LeasedStore(inner, ttl="10s", replicas=replicas)


class Spending:
    """Hits of one key, and what became of them."""

    def __init__(self, *stores: LeasedStore) -> None:
        self.stores = stores
        self.limiters = [Limiter(LIMIT, store=store) for store in stores]
        self.here = 0  # admitted from leases
        self.direct = 0

    def hit(self) -> bool:
        """One from each; whether any was admitted."""
        admitted = False
        for store, limiter in zip(self.stores, self.limiters, strict=True):
            before = store.stats().decided_here
            if limiter.hit("k"):
                admitted = True
                if store.stats().decided_here > before:
                    self.here += 1
                else:
                    self.direct += 1
        return admitted

    def spend_all(self) -> None:
        """Until a server that answers has refused for a while."""
        refused = 0

        def is_empty() -> bool:
            nonlocal refused
            decisions = [limiter.hit("other") for limiter in self.limiters]
            if any(decision.degraded for decision in decisions):
                return False
            admitted = [self.hit() for _ in range(20)]
            refused = 0 if any(admitted) else refused + 1
            return refused > 20

        wait_until(is_empty, "everything is spent", 120)

    @property
    def admitted(self) -> int:
        return self.here + self.direct


def ask(server: Server, *words: Any) -> Any:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return client.execute_command(*words)


def with_replica(own_server: Start) -> tuple[Server, Server]:
    primary, replica = own_server(), own_server("--repl-diskless-sync-delay", "0")
    ask(replica, "REPLICAOF", "127.0.0.1", primary.port)
    wait_until(lambda: ask(replica, "ROLE")[3] == "connected", "a replica", 60)
    return primary, replica


@pytest.mark.parametrize("replicas", [0, 1])
def test_what_a_fail_over_forgets_passes_once_and_with_replicas_no_lease_is_forgotten(
    own_server: Start, prefix: str, replicas: int
) -> None:
    """Who spent it dies as well: otherwise it would tell the new server, which books it."""
    primary, replica = with_replica(own_server)
    with Proxy(primary.url) as proxy, leasing(proxy.url, prefix, replicas) as store:
        spending = Spending(store)
        while store.stats().held < 5:
            spending.hit()
        wait_until(lambda: ask(primary, "WAIT", 1, 1000) == 1, "the replica has it all", 60)
        ask(replica, "REPLICAOF", "NO", "ONE")  # it hears of nothing any more
        held, known = store.stats().held, spending.admitted
        direct = spending.direct
        while spending.admitted < known + held + 200:
            spending.hit()
        forgotten_direct = spending.direct - direct
        forgotten_leased = spending.admitted - known - forgotten_direct - held
        booked = BURST - Limiter(LIMIT, store=store).peek("k", whole=True).remaining
        proxy.target = "127.0.0.1", replica.port
        store.after_fork()  # another process takes its place
        primary.kill()
        proxy.disconnect()
        spending.spend_all()
    more = spending.admitted - BURST
    # The direct decisions that it forgot are no matter of leases: see RedisStore.
    if replicas:
        assert forgotten_direct > 0
        assert more <= forgotten_direct + 1
    else:
        assert forgotten_leased > 0
        assert forgotten_direct + 1 < more <= booked


def test_grants_that_no_replica_confirms_are_not_spent(own_server: Start, prefix: str) -> None:
    primary, replica = with_replica(own_server)
    events: list[Event] = []
    with leasing(primary.url, prefix, replicas=1) as store:
        store.subscribe(events.append)
        replica.pause()
        spending = Spending(store)

        def is_cut_off() -> bool:
            spending.hit()
            return any(isinstance(event, LeasesCutOff) for event in events)

        wait_until(is_cut_off, "it is cut off", 60)
        assert store.stats().held == 0
        assert spending.here == 0
        cut = next(event for event in events if isinstance(event, LeasesCutOff))
        assert cut.reason == "0 of 1 replicas have confirmed a grant"
        replica.resume()

        def is_leased() -> bool:
            spending.hit()
            return spending.here > 0

        wait_until(is_leased, "the replica confirms", 60)
        assert any(isinstance(event, LeasesRestored) for event in events)
        ask(primary, "SCRIPT", "FLUSH")
        before = store.stats().messages
        wait_until(lambda: spending.hit() or store.stats().messages > before + 3, "goes on", 60)
        assert not isinstance(events[-1], LeasesCutOff)


def test_a_restart_without_persistence_lets_pass_what_it_forgot_once(
    own_server: Start, prefix: str
) -> None:
    server = own_server()
    with leasing(server.url, prefix) as one, leasing(server.url, prefix) as two:
        spending = Spending(one, two)
        while min(one.stats().held, two.stats().held) < 5 or spending.admitted < 300:
            spending.hit()
        booked = BURST - Limiter(LIMIT, store=one).peek("k", whole=True).remaining
        before = spending.admitted
        assert before < booked < BURST
        server.restart()
        spending.spend_all()
        # It has forgotten all that it had booked. What was in hand is claimed, so the rest is
        # what was spent before; at most all of it, if it was spent before it was claimed.
        assert BURST < spending.admitted <= BURST + booked
        # And only once: the new server knows of everything.
        assert BURST - Limiter(LIMIT, store=one).peek("k", whole=True).remaining == BURST
        last = spending.admitted
        spending.spend_all()
        assert spending.admitted <= last + 1


def test_sentinels_fail_over_and_leases_wait_for_a_new_replica(
    sentinels: SentinelSetup, prefix: str
) -> None:
    places = ",".join(f"127.0.0.1:{port}" for port in sentinels.sentinel_ports)
    events: list[Event] = []
    with leasing(f"redis+sentinel://{places}/{sentinels.service}", prefix, replicas=1) as store:
        store.subscribe(events.append)
        spending = Spending(store)

        def leases(after: type[Event] | None = None) -> Callable[[], bool]:
            def look() -> bool:
                spending.hit()
                heard = after is None or any(isinstance(event, after) for event in events)
                return heard and store.stats().held > 0

            return look

        wait_until(leases(), "a lease", 60)
        direct = spending.direct
        sentinels.kill_master()
        sentinels.wait_failover()
        for _ in range(50):
            spending.hit()
        sentinels.heal()
        wait_until(leases(LeasesRestored), "it leases again", 60)
        spending.spend_all()
    assert any(isinstance(event, LeasesCutOff) for event in events)
    assert spending.admitted - BURST <= spending.direct - direct
    assert spending.admitted > BURST * 0.9


def test_in_a_cluster_the_replicas_of_the_key_confirm(cluster: Cluster, prefix: str) -> None:
    places = ",".join(f"127.0.0.1:{port}" for port in cluster.ports[:2])
    with leasing(f"redis+cluster://{places}", prefix, replicas=1) as store:
        lease = heat(store, LIMIT)
        assert store.stats().failures == 0
        dead = cluster.master_of(lease.places[0])
        cluster.kill(dead)
        cluster.failed_over(dead)
        cluster.heal()
        limiter, calls = Limiter(LIMIT, store=store), store.stats().granted

        def is_leased() -> bool:
            for _ in range(12):
                limiter.hit("k")
            return store.stats().granted > calls

        wait_until(is_leased, "it leases again", 60)
