"""RegionStore over real servers: floors, shares, cuts, elections, and what is decided at home."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import AsyncGate, AsyncLimiter, Limit, Limiter, StoreError
from penstock.events import Event, StoreDown, StoreUp
from penstock.stores.leased import LeasedStore
from penstock.stores.leased.counters import LeasedCounters
from penstock.stores.redis import RedisStore
from penstock.stores.redis.counters import RedisCounters
from penstock.stores.regions import RegionStore
from penstock.stores.regions.counters import RegionCounters
from penstock.testing import FakeClock, StoreConformance
from stores.proxy import Proxy
from stores.redis_server import wait_until
from stores.redis_time import ToldStore

UNHURRIED: dict[str, Any] = {"deadline": "60s", "connect_timeout": "60s"}
LIMIT = "100/second"


class TestConformance(StoreConformance):
    """A site with a floor of 100 % keeps all that a store promises, but one thing."""

    @pytest.fixture(autouse=True)
    def _server(self, redis_url: str, prefix: str) -> Iterator[None]:
        self.url = redis_url
        self.names = (f"{prefix}-{number}" for number in itertools.count())
        self.stores: list[RegionStore] = []
        yield
        for store in self.stores:
            store.close()

    def make_store(self, clock: FakeClock) -> RegionStore:
        site, home = [ToldStore(self.url, clock, prefix=next(self.names)) for _ in range(2)]
        store = RegionStore(site, home, region="eu", floor="100%")
        store._region.started = True  # without the thread
        store._region.granted = 1_000_000
        self.stores.append(store)
        return store

    def test_a_bucket_reserves_for_later(self) -> None:
        limiter, _ = self.limiter("60/minute burst 3")
        with pytest.raises(StoreError, match="a site cannot reserve for later"):
            limiter.reserve("k", cost=2, max_delay="3s")


@pytest.fixture
def make(redis_url: str, prefix: str) -> Iterator[Callable[..., RegionStore]]:
    """Stores of regions, each site with keys of its own; rounds are run by the test."""
    made: list[RegionStore] = []

    def start(
        region: str, floor: str = "20%", home: str = redis_url, **options: Any
    ) -> RegionStore:
        closed = {"on_failure": "closed", **UNHURRIED, **options.pop("site", {})}
        store = RegionStore(
            RedisStore(redis_url, prefix=f"{prefix}-{options.pop('at', region)}", **closed),
            RedisStore(home, prefix=f"{prefix}-home", **UNHURRIED),
            region=region, floor=floor, **{"lease": "1s", **options},
        )  # fmt: skip
        store._region.started = True
        made.append(store)
        return store

    yield start
    for store in made:
        store.close()


def join(*stores: RegionStore) -> None:
    """Run rounds until all have a floor: the home has to be as old as a lease."""

    def have_floors() -> bool:
        for store in stores:
            store._region.run_round()
        return all(store.stats().floor > 0 for store in stores)

    wait_until(have_floors, "floors", 60)


def borrow(store: RegionStore, limiter: Limiter) -> int:
    """Hit and report until there is a share; how many hits passed."""
    passed = 0

    def has_share() -> bool:
        nonlocal passed
        passed += sum(bool(limiter.hit("k")) for _ in range(50))
        store._region.run_round()
        return any(row.rate for row, _ in store._region.agent.lent.values())

    wait_until(has_share, "a share", 60)
    return passed


def test_until_it_has_a_floor_the_failure_policy_decides(make: Callable[..., RegionStore]) -> None:
    store = make("eu")
    limiter = Limiter(LIMIT, store=store)
    refused = limiter.hit("k")
    assert (refused.allowed, refused.degraded) == (False, True)
    assert [bool(each) for each in limiter.hit_many(["a", "b"])] == [False, False]
    assert not limiter.hit_all([("a", None, 1), ("b", "5/second fixed_window", 1)])
    join(store)
    assert limiter.hit("k")
    assert not limiter.hit("k").degraded


def test_a_site_has_its_floor_and_borrows_what_it_needs(make: Callable[..., RegionStore]) -> None:
    eu, us = make("eu"), make("us")
    join(eu, us)
    limiter = Limiter(LIMIT, store=eu)
    assert sum(bool(limiter.hit("k")) for _ in range(100)) == 20
    assert borrow(eu, limiter) < 100
    # 60 of the burst and the rate are nobody's floor: all of it, as nobody else wants any.
    ((row, reply),) = eu._region.agent.lent.values()
    assert (row.burst, reply.lent_burst) == (60, 60)
    assert row.rate * 10 == reply.lent_rate * 10
    # A key with little traffic is decided on the floor, and the home never hears of it.
    assert limiter.hit("another")
    eu._region.run_round()
    assert len(eu._region.agent.lent) == 1


def test_two_sites_share_by_demand(make: Callable[..., RegionStore]) -> None:
    eu, us = make("eu"), make("us")
    join(eu, us)
    for store in (eu, us):
        borrow(store, Limiter(LIMIT, store=store))

    def is_divided() -> bool:
        for store, hits in ((eu, 90), (us, 30)):
            limiter = Limiter(LIMIT, store=store)
            for _ in range(hits):
                limiter.hit("k")
            store._region.run_round()
        ((ours, _),), ((theirs, _),) = (store._region.agent.lent.values() for store in (eu, us))
        return ours.rate > 1.5 * theirs.rate > 0

    wait_until(is_divided, "shares by demand", 60)


def test_cut_off_it_keeps_its_share_until_it_ends_then_its_floor(
    make: Callable[..., RegionStore], redis_url: str
) -> None:
    events: list[Event] = []
    with Proxy(redis_url) as proxy:
        store = make("eu", "20%", proxy.url)
        store.subscribe(events.append)
        join(store)
        limiter = Limiter("20/minute burst 100", store=store)
        borrow(store, limiter)
        proxy.refuse()
        proxy.disconnect()

        def is_cut_off() -> bool:
            store._region.run_round()
            return store.stats().is_cut_off

        wait_until(is_cut_off, "the site to notice", 60)
        assert isinstance(events[-1], StoreDown)
        assert limiter.hit("k").degraded
        wait_until(lambda: limiter.peek("k").limit is not None and not _share(store), "its end", 60)
        # The floor is 4 a minute, of a burst of 20: as if it had never had anything else.
        taken = sum(bool(limiter.hit("new")) for _ in range(100))
        assert taken == 20
        # This process's clock may be some milliseconds behind the clock of the site's Redis.
        wait_until(lambda: store.stats().share_left == 0, "its end, as told", 60)
        proxy.let_pass()

        def is_back() -> bool:
            store._region.run_round()
            return not store.stats().is_cut_off

        wait_until(is_back, "the home", 60)
        assert isinstance(events[-1], StoreUp)
        assert not limiter.hit("k").degraded


def _share(store: RegionStore) -> int:
    """The rate that the site's row has beside its floor."""
    from penstock.stores.regions.messages import Apply

    agent = store._region.agent
    looks = store._region._site.apply(Apply(200_000, [(each, None) for each in agent.active]))
    return sum(row.rate for row in looks.rows if row is not None)


def test_floors_of_more_than_the_whole_are_refused(make: Callable[..., RegionStore]) -> None:
    eu = make("eu", "70%")
    join(eu)
    us = make("us", "40%")
    us._region.run_round()
    us._region.run_round()
    problem = us.stats().problem
    assert "add up to 110 %" in problem
    assert "lower the floor of 'us'" in problem
    assert us.stats().floor == 0
    assert Limiter(LIMIT, store=us).hit("k").degraded
    eu.remove_region("eu")  # as if it had gone for good
    join(us)
    assert us.stats().problem == ""


def test_two_sites_of_one_name_are_refused(make: Callable[..., RegionStore]) -> None:
    first, second = make("eu"), make("eu", at="elsewhere")
    join(first)
    second._region.run_round()
    second._region.run_round()
    assert "another site has the name 'eu'" in second.stats().problem
    assert second.stats().floor == 0


def test_one_instance_speaks_for_the_site_until_it_dies(make: Callable[..., RegionStore]) -> None:
    first, second = make("eu"), make("eu")
    join(first)
    second._region.run_round()
    assert (first.stats().is_agent, second.stats().is_agent) == (True, False)
    assert second.stats().floor == 0.2  # it knows what the agent knows
    limiter = Limiter(LIMIT, store=second)
    for _ in range(60):
        limiter.hit("k")
    second._region.run_round()
    first._region.run_round()
    assert first.stats().lent == 1  # what the other was asked for

    def takes_over() -> bool:  # the first runs no rounds any more
        second._region.run_round()
        return second.stats().is_agent

    wait_until(takes_over, "another election", 60)
    assert second.stats().fence == first.stats().fence + 1
    # The first was only slow: it does nothing until it is elected again.
    first._region.run_round()
    assert (first.stats().is_agent, first.stats().lent) == (False, 0)


def test_what_cannot_be_divided_is_decided_at_home(make: Callable[..., RegionStore]) -> None:
    eu, us = make("eu"), make("us")
    join(eu, us)
    for text in ("5/minute fixed_window", "2/minute", "9/minute leaky_bucket", "9/minute debt 2"):
        limit = Limit.parse(text)
        assert type(eu.counters(limit)) is RedisCounters
        ours, theirs = Limiter(text, store=eu), Limiter(text, store=us)
        passed = sum(bool(each.hit("k")) for _ in range(20) for each in (ours, theirs))
        assert passed == limit.burst
    assert type(eu.counters(Limit.parse("10/minute"))) is RegionCounters


def test_both_kinds_pass_together_or_not_at_all(make: Callable[..., RegionStore]) -> None:
    store = make("eu")
    join(store)
    here, far = Limiter("100/hour", store=store), "3/hour fixed_window"
    for _ in range(3):
        assert here.hit_all([("k", None), ("k", far)])
    assert not here.hit_all([("k", None), ("k", far)])
    assert here.peek("k").remaining == 17
    assert sum(bool(here.hit("k")) for _ in range(20)) == 17
    assert not here.hit_all([("k", None), ("new", far)])
    assert Limiter(far, store=store).peek("new").remaining == 3


async def test_coroutines_and_gates_decide_by_it(make: Callable[..., RegionStore]) -> None:
    store = make("eu")
    join(store)
    store._region.started = False  # the first coroutine starts it
    limiter = AsyncLimiter("100/hour", store=store)
    assert await limiter.hit("k")
    assert store._region.started
    # At least the floor of 20 %; a share may have been lent meanwhile.
    assert sum(bool(each) for each in await limiter.hit_many(["k"] * 20)) >= 19
    assert (await limiter.peek("other")).remaining >= 20
    while await limiter.hit("k"):
        pass
    assert not await limiter.hit_all([("k", None), ("k", "3/hour fixed_window")])
    rules = {"key": "user", "limits": ["50/hour", "30/hour fixed_window"]}
    gate = AsyncGate.from_rules({"domain": "api", "descriptors": [rules]}, store=store)
    passed = [bool(await gate.check({"user": "1"})) for _ in range(40)]
    assert 10 <= sum(passed) <= 30
    await store.close_async()


def test_a_refund_goes_to_the_site(make: Callable[..., RegionStore]) -> None:
    store = make("eu")
    join(store)
    limiter = Limiter("100/hour", store=store)
    limiter.reserve("k", cost=10).settle(4)
    assert limiter.peek("k").remaining == 16


def test_without_its_own_redis_a_process_has_its_share_of_the_floor(
    make: Callable[..., RegionStore], redis_url: str
) -> None:
    store = make("eu", "20%", site={"on_failure": "local", "share": 0.5, "deadline": "1ms"})
    limiter = Limiter("100/hour", store=store)
    assert sum(bool(limiter.hit("k")) for _ in range(30)) == 10  # half of a fifth


def test_leases_of_a_site_are_taken_from_its_floor_and_share(
    make: Callable[..., RegionStore],
) -> None:
    store = make("eu", lease="5s")
    join(store)
    leased = LeasedStore(store)
    limiter = Limiter("2000/second", store=leased)
    counters = leased.counters(Limit.parse("2000/second"))
    assert isinstance(counters, LeasedCounters)
    passed = 0

    def decides_here() -> bool:
        nonlocal passed
        passed += sum(bool(limiter.hit("k")) for _ in range(200))
        store._region.run_round()
        lent = store._region.agent.lent.values()
        return counters.decided_here > 2_000 and any(row.rate for row, _ in lent)

    wait_until(decides_here, "leases and a share", 60)
    assert passed
    (holder,) = leased.holders("2000/second", "k")
    assert holder.expires <= 5
    leased.close()


def test_slots_and_other_keys_are_at_home(make: Callable[..., RegionStore], prefix: str) -> None:
    store = make("eu")
    assert store.prefix == f"{prefix}-home"
    with store.client() as client:
        assert client.ping()


def test_a_forked_child_has_a_thread_and_a_name_of_its_own(
    make: Callable[..., RegionStore],
) -> None:
    store = make("eu")
    join(store)
    name = store._region.agent.name
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover  # in the child
        allowed = Limiter(LIMIT, store=store).hit("k").allowed
        own = store._region.agent.name != name and store._region._thread is not None
        os.write(writer, b"%d%d" % (allowed, own))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 2) == b"11"
    os.close(reader)
    os.close(writer)
    assert Limiter(LIMIT, store=store).hit("k")


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"floor": "ten"}, ValueError, "floor is a part such as '10%' or 0.1"),
        ({"floor": 0}, ValueError, "floor is a part"),
        ({"floor": "110%"}, ValueError, "at most 1"),
        ({"region": ""}, ValueError, "region is a name such as 'eu'"),
        ({"region": "a{b"}, ValueError, "region is a name such as 'eu'"),
        ({"lease": "1ms"}, ValueError, "lease is from 1s to 10m"),
        ({"site": "redis://x"}, TypeError, "site is a RedisStore"),
        ({"home": None}, TypeError, "home is a RedisStore"),
    ],
)
def test_wrong_options_say_what_to_write(
    options: dict[str, Any], error: type[Exception], says: str
) -> None:
    given = {
        "site": RedisStore("redis://127.0.0.1:1"), "home": RedisStore("redis://127.0.0.1:1"),
        "region": "eu", "floor": "10%", **options,
    }  # fmt: skip
    with pytest.raises(error, match=says):
        RegionStore(**given)


def test_a_leased_store_belongs_around_a_region_store() -> None:
    leased = LeasedStore(RedisStore("redis://127.0.0.1:1"))
    with pytest.raises(TypeError, match=r"LeasedStore\(RegionStore\(...\)\)"):
        RegionStore(leased, RedisStore("redis://127.0.0.1:1"), region="eu")  # type: ignore[arg-type]
