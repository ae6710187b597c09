"""RegionStore: limits that several sites share, each deciding in its own Redis."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import Awaitable
from typing import Any

from penstock.clock import Clock
from penstock.decision import Decision
from penstock.durations import Duration, format_duration, parse_duration
from penstock.events import Hook
from penstock.keys import part
from penstock.limits import Limit
from penstock.stores.base import Counters, Store
from penstock.stores.leased.boottime import BOOT
from penstock.stores.leased.exchange import instance_name
from penstock.stores.redis import RedisStore
from penstock.stores.redis.clients import AsyncClient, Client
from penstock.stores.redis.forgetting import forget_counters
from penstock.stores.redis.operation import ATTEMPT, HIT, KeyOperation
from penstock.stores.regions import law
from penstock.stores.regions.agent import Agent
from penstock.stores.regions.calls import HomeCalls, SiteCalls
from penstock.stores.regions.counters import RegionCounters
from penstock.stores.regions.region import Region
from penstock.stores.regions.stats import RegionStats

logger = logging.getLogger("penstock.regions")

Item = tuple[Counters, str, int]


class RegionStore(RedisStore):
    """One limit over several sites. Each decides in its own Redis, ``site``, on a floor that is
    reserved for it, and on a share of the rest that ``home`` lends it by demand.

    All sites together never admit more than the limit. A site that is cut off from the home
    uses its shares until they end, then its floor, and never more; decisions are flagged
    ``degraded`` meanwhile.

    - ``region``: the name of this site, another one for each
    - ``floor``: the part of every limit that is reserved for this site, such as ``"10%"`` or 0.1.
      Those of all sites are at most 100 %
    - ``lease``: how long a share lasts if it is not renewed; the same at all sites

    Token buckets without options are divided, if the floor of their burst is at least 1. Other
    limits are decided by ``home``, over the distance, as are slots of concurrency limits.
    """

    def __init__(
        self,
        site: RedisStore,
        home: RedisStore,
        *,
        region: str,
        floor: float | str = "5%",
        lease: Duration = "30s",
        clock: Clock = BOOT,
    ) -> None:
        _check(site, home)
        Store.__init__(self)
        if not isinstance(region, str) or not region or part(region) != region:
            raise ValueError(f"region is a name such as 'eu', not {region!r:.100}")
        length = parse_duration(lease, "lease")
        if not law.SHORTEST_LEASE <= length <= law.LONGEST_LEASE:
            raise ValueError(f"lease is from 1s to 10m, not {format_duration(length)}")
        self.site, self.home = site, home
        self.region = region
        self.floor = read_floor(floor)
        self.name = f"{site.name}, region {region} of {home.name}"
        self.home_name = f"home {home.name}"  # in events about whether it can be heard
        self.on_failure = site.on_failure
        self.prefix = home.prefix  # of what others keep here: see `client`
        self.fallback = site.fallback
        site.fallback.part = self.floor / law.WHOLE
        self._settings, self._engines = site._settings, site._engines
        self._hooks, self._tag, self._in_slots = site._hooks, site._tag, site._in_slots
        times = law.times_of(length)
        agent = Agent(instance_name(), region, self.floor, times)
        self._region = Region(
            agent,
            SiteCalls(site, region, times.lease),
            HomeCalls(home, times),
            self._hooks,
            self.home_name,
            clock,
        )
        self._finalizer = weakref.finalize(self, self._region.close)
        _stores.add(self)

    def make_counters(self, limit: Limit, name: str | None = None) -> Counters:
        why = law.undividable(limit, self.floor)
        if why is not None:
            logger.warning("%s is decided at home, over the distance: %s", limit, why)
            return self.home.counters(limit, name)
        if (limit.on_failure or self.fallback.policy) == "local":
            self.fallback.counters(limit, name)  # fails now if it cannot work
        return RegionCounters(limit, self.site, self._region, name)

    @property
    def lease_prefix(self) -> str:
        return self.site.prefix

    def release(self, limit: Limit) -> bool:
        if law.undividable(limit, self.floor) is not None:
            return self.home.release(limit) and self.forget(limit)
        return super().release(limit)

    # Several at once --------------------------------------------------------------------

    def hit_each(self, wanted: list[Item], attempt: bool = False) -> list[Decision]:
        self._region.start()
        here, far = _split(wanted)
        decisions = self._hit_here(here, attempt)
        if far and all(decisions):
            others = self.home.hit_each(far, attempt)
            if not all(others):
                self._give_back(here, decisions)
        else:
            others = [counters.peek(key, cost) for counters, key, cost in far]
        return _joined(wanted, decisions, others)

    def _hit_here(self, here: list[Item], attempt: bool) -> list[Decision]:
        if not here:
            return []
        if not all(_is_ready(item) for item in here):
            return self._without_floor(here, attempt)
        return _seen(here, super().hit_each(here, attempt))

    def hit_groups(self, wanted: list[list[Item]]) -> list[list[Decision]]:
        self._region.start()
        ready = all(_is_ready(item) for group in wanted for item in group)
        if ready and all(
            isinstance(each, RegionCounters) for group in wanted for each, *_ in group
        ):
            groups = super().hit_groups(wanted)
            return [_seen(group, each) for group, each in zip(wanted, groups, strict=True)]
        return [self.hit_each(group) for group in wanted]

    def call_each(self, verb: str, calls: list[tuple[Any, tuple[Any, ...]]]) -> list[Any]:
        return Store.call_each(self, verb, calls)

    def hit_each_async(
        self, wanted: list[Item], attempt: bool = False
    ) -> Awaitable[list[Decision]]:
        return self._hit_each_async(wanted, attempt)

    async def _hit_each_async(self, wanted: list[Item], attempt: bool) -> list[Decision]:
        if not self._region.started:
            await asyncio.to_thread(self._region.start)
        here, far = _split(wanted)
        decisions: list[Decision] = []
        if here and all(_is_ready(item) for item in here):
            decisions = _seen(here, await super().hit_each_async(here, attempt))
        elif here:
            decisions = self._without_floor(here, attempt)
        if far and all(decisions):
            try:
                others = await self.home.hit_each_async(far, attempt)
            except BaseException:
                self._give_back(here, decisions)
                raise
            if not all(others):
                self._give_back(here, decisions)
        else:
            others = [await counters.submit("peek", key, cost) for counters, key, cost in far]
        return _joined(wanted, decisions, others)

    def _without_floor(self, here: list[Item], attempt: bool) -> list[Decision]:
        """All or nothing by the failure policy."""
        verb = ATTEMPT if attempt else HIT
        decisions = [
            counters.without_floor(KeyOperation(counters, key, verb, cost))
            for counters, key, cost in here
            if isinstance(counters, RegionCounters)
        ]
        if not all(decisions):
            self._give_back(here, decisions)
        return decisions

    def _give_back(self, here: list[Item], decisions: list[Decision]) -> None:
        for (counters, key, cost), decision in zip(here, decisions, strict=True):
            if decision:
                counters.refund(key, cost, decision._mark)

    def clear(self) -> None:
        """Forget every key that this site and the home have counters for: see `RedisStore.clear`.

        Shares stay lent, and other sites keep their counters.
        """
        with self.site.client(timeout="10s") as client:
            forget_counters(client, f"{self.site.prefix}:region")
        self.fallback.local.clear()
        self.home.clear()

    # The region ---------------------------------------------------------------------------

    def stats(self) -> RegionStats:
        """Figures of this process, and of its region as far as it knows."""
        region, agent = self._region, self._region.agent
        state = agent.state
        return RegionStats(
            region=self.region,
            floor=(region.granted or 0) / law.WHOLE,
            is_agent=state is not None and state.is_agent,
            fence=0 if state is None else state.fence,
            is_cut_off=region.is_cut_off,
            share_left=region.share_left,
            watched=len(region.watch),
            lent=len(agent.lent),
            rounds=region.rounds,
            failures=region.failures,
            problem=region.problem,
        )

    def wait_for_floor(self, timeout: float = 60.0) -> None:
        """Wait until the home has granted this region its floor, which takes one lease when the
        region is new, and no time afterwards.

        `StoreUnavailable` with the reason if that takes longer.
        """
        self._region.start()
        self._region.wait_for_floor(timeout)

    def remove_region(self, name: str) -> None:
        """Take a region that is gone for good off the home's roster, so that others may have its
        floor. It must not be in use any more: a site that still is would come back."""
        self._region.forget(name)

    # The connection -----------------------------------------------------------------------

    def connect(self, timeout: float = 5.0) -> None:
        """Connect to the site now, and learn the floor. The home may be away."""
        self.site.connect(timeout)
        self._region.start()

    async def connect_async(self, timeout: float = 5.0) -> None:
        """The same for the tasks of this event loop."""
        await self.site.connect_async(timeout)
        await asyncio.to_thread(self._region.start)

    def subscribe(self, hook: Hook) -> None:
        """Call ``hook`` with every event of the site, and of the home as seen from here."""
        self._hooks.add(hook)
        self.home.subscribe(hook)

    def unsubscribe(self, hook: Hook) -> None:
        """Stop calling ``hook``."""
        self._hooks.remove(hook)
        self.home.unsubscribe(hook)

    def client(
        self, *, timeout: Duration = "1s", connect_timeout: Duration | None = None
    ) -> Client:
        """A client of the home: what is kept beside counters is shared by all regions."""
        return self.home.client(timeout=timeout, connect_timeout=connect_timeout)

    def client_async(
        self, *, timeout: Duration = "1s", connect_timeout: Duration | None = None
    ) -> AsyncClient:
        """The same for coroutines."""
        return self.home.client_async(timeout=timeout, connect_timeout=connect_timeout)

    def counter_client(self, *, timeout: Duration = "1s") -> Client:
        """A client of the site, which has the counters."""
        return self.site.client(timeout=timeout)

    def close(self) -> None:
        """Stop the agent, and close the connections to site and home, for good."""
        self._finalizer()
        self.site.close()
        self.home.close()

    async def close_async(self) -> None:
        """Stop the agent, and close the connections of this event loop."""
        await asyncio.to_thread(self._finalizer)
        await self.site.close_async()
        await self.home.close_async()

    def __repr__(self) -> str:
        return f"<RegionStore {self.name}>"


def read_floor(floor: object) -> int:
    """A floor in millionths: ``0.1`` or ``"10%"``."""
    value = floor
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            value = float(value.strip().removesuffix("%")) / 100
        except ValueError:
            value = floor
    elif isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = floor
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(
            f"floor is a part such as '10%' or 0.1, above 0 and at most 1, not {floor!r}"
        )
    return int(value * law.WHOLE + 1e-6)


def _check(site: object, home: object) -> None:
    for name, store in (("site", site), ("home", home)):
        if not isinstance(store, RedisStore):
            hint = ""
            if hasattr(store, "redis"):
                hint = "; to lease from a site, write LeasedStore(RegionStore(...))"
            raise TypeError(f"{name} is a RedisStore, not {store!r:.100}{hint}")
    if isinstance(site, RegionStore) or isinstance(home, RegionStore):
        raise TypeError("a RegionStore can be neither the site nor the home of another")
    if site is home:
        raise ValueError("site and home are two stores, even if both are on one server")


def _split(wanted: list[Item]) -> tuple[list[Item], list[Item]]:
    """Those that the site decides, and those that the home does."""
    here = [item for item in wanted if isinstance(item[0], RegionCounters)]
    return here, [item for item in wanted if not isinstance(item[0], RegionCounters)]


def _joined(wanted: list[Item], here: list[Decision], far: list[Decision]) -> list[Decision]:
    mine, others = iter(here), iter(far)
    return [
        next(mine) if isinstance(counters, RegionCounters) else next(others)
        for counters, _, _ in wanted
    ]


def _is_ready(item: Item) -> bool:
    return not isinstance(item[0], RegionCounters) or item[0].is_ready


def _seen(items: list[Item], decisions: list[Decision]) -> list[Decision]:
    return [
        counters.seen(key, cost, decision) if isinstance(counters, RegionCounters) else decision
        for (counters, key, cost), decision in zip(items, decisions, strict=True)
    ]


_stores: weakref.WeakSet[RegionStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in _stores:
        store._region.after_fork(instance_name())


os.register_at_fork(after_in_child=_after_fork)
