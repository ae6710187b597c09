"""LeasedStore: the limits of a `RedisStore`, decided in this process."""

from __future__ import annotations

import asyncio
import signal
import weakref
from collections.abc import Awaitable
from typing import Any

from penstock.clock import Clock
from penstock.decision import Decision
from penstock.durations import Duration, format_duration, parse_duration
from penstock.events import Hook
from penstock.limit_options import check_share
from penstock.limits import Limit
from penstock.stores.base import Counters, Store, check_cost, check_key
from penstock.stores.leased import law
from penstock.stores.leased.boottime import BOOT
from penstock.stores.leased.counters import LeasedCounters
from penstock.stores.leased.ending import begin_anew_after_fork, return_on_signal
from penstock.stores.leased.exchange import Exchange
from penstock.stores.leased.holders import Holder, LeasedKey
from penstock.stores.leased.lease import Lease
from penstock.stores.leased.renewal import Renewal
from penstock.stores.leased.stats import LeaseStats
from penstock.stores.redis import RedisStore

Item = tuple[Counters, str, int]


class LeasedStore(Store):
    """Decides hot keys of a `RedisStore` from units that are leased to this process.

    The limit stays shared and exact: what is leased is taken from the counter in Redis, and
    other instances see that, whether they lease or not. Token buckets, leaky buckets and fixed
    windows of at least 16 units, without options such as debt or lockout, are leased. Other
    limits, and keys with little traffic, are decided by ``redis`` as before.

    - ``horizon``: a lease is sized for the demand of this long
    - ``ttl``: how long a lease may live without being renewed, at most 10 s; by default ten
      times the horizon, at least half a second
    - ``share``: the part of a limit's burst that instances may hold, each its part by demand
    - ``replicas``: how many replicas of the server must have a grant before it is spent, so that
      a fail-over to one of them forgets no lease
    """

    waits = True
    can_lease = True

    def __init__(
        self,
        redis: RedisStore,
        *,
        horizon: Duration = "100ms",
        ttl: Duration | None = None,
        share: float = law.SHARE,
        replicas: int = 0,
        clock: Clock = BOOT,
    ) -> None:
        super().__init__()
        if not isinstance(redis, RedisStore):
            raise TypeError(f"a LeasedStore leases from a RedisStore, not from {redis!r}")
        self.redis = redis
        self.name = redis.name
        self.on_failure = redis.on_failure
        self._horizon = _checked(parse_duration(horizon, "horizon"))
        self._ttl = None if ttl is None else parse_duration(ttl, "ttl")
        if self._ttl is not None and not 4 * self._horizon <= self._ttl <= law.LONGEST_TTL:
            raise ValueError(f"ttl is at least 4 horizons and at most 10s, not {ttl!r}")
        self._share = check_share(share)
        if type(replicas) is not int or replicas < 0:
            raise ValueError(f"replicas is a whole number of at least 0, not {replicas!r:.100}")
        self._clock = clock
        self._renewal = Renewal(Exchange(redis, replicas), clock)
        self._leased: list[LeasedCounters] = []
        self._own_horizon: dict[tuple[Limit, int], Counters] = {}
        self._released_here = 0  # decisions of counters that were released
        self._released_directly = 0
        # Also at the end of the interpreter.
        self._finalizer = weakref.finalize(self, _close, self._renewal, self._leased)
        begin_anew_after_fork(self)

    def make_counters(self, limit: Limit, name: str | None = None) -> Counters:
        return self._make(limit, self._horizon, self._ttl, name)

    def counters_with(self, limit: Limit, lease: bool | int | None) -> Counters:
        """See `Store.counters_with`. All kinds count in the same rows in Redis."""
        if lease is False:
            return self.redis.counters(limit)
        if lease is None or lease is True or lease == self._horizon:
            return self.counters(limit)
        with self._making:
            counters = self._own_horizon.get((limit, lease))
            if counters is None:
                horizon = _checked(lease)
                ttl = None if self._ttl is None else max(self._ttl, 4 * horizon)
                counters = self._own_horizon[limit, lease] = self._make(limit, horizon, ttl)
        return counters

    def _make(
        self, limit: Limit, horizon: int, ttl: int | None, name: str | None = None
    ) -> Counters:
        direct = self.redis.counters(limit, name)
        if law.terms_of(limit, horizon, ttl, self._share) is None:
            return direct
        counters = LeasedCounters(direct, horizon, ttl, self._share, self._renewal, self._clock)
        self._leased.append(counters)
        return counters

    def release(self, limit: Limit) -> bool:
        with self._making:
            for own in [own for own in self._own_horizon if own[0] == limit]:
                del self._own_horizon[own]
            released = [counters for counters in self._leased if counters.limit == limit]
            for counters in released:
                self._leased.remove(counters)
                self._released_here += counters.decided_here
                self._released_directly += counters.decided_directly
        self._renewal.give_back(_leases(released))
        return self.redis.release(limit) and self.forget(limit)

    # Several at once --------------------------------------------------------------------

    def hit_each(self, wanted: list[Item], attempt: bool = False) -> list[Decision]:
        decisions = self._hit_here(wanted, attempt)
        if decisions is None:
            return self.redis.hit_each(_direct(wanted), attempt)
        return decisions

    def hit_each_async(
        self, wanted: list[Item], attempt: bool = False
    ) -> Awaitable[list[Decision]]:
        decisions = self._hit_here(wanted, attempt)
        if decisions is None:
            return self.redis.hit_each_async(_direct(wanted), attempt)
        return _ready(decisions)

    def _hit_here(self, wanted: list[Item], attempt: bool) -> list[Decision] | None:
        """All from leases or nothing; None if one of them must be decided directly."""
        leased = [(c, key, cost) for c, key, cost in wanted if isinstance(c, LeasedCounters)]
        looks = [counters.look(key, cost) for counters, key, cost in leased]
        waits = attempt and any(c.limit.algorithm == "leaky_bucket" for c, _, _ in leased)
        directly = len(leased) < len(wanted) or None in looks or waits
        if directly or not all(looks):
            for counters, key, cost in leased:
                counters.offer(check_key(key), check_cost(cost), directly)
            return None if directly else [look for look in looks if look is not None]
        decisions: list[Decision] = []
        for counters, key, cost in leased:
            decision = counters.here(key, cost)
            if not decision:
                break  # another thread was quicker
            decisions.append(decision)
        else:
            return decisions
        # What the bank was told of meanwhile stays taken: that is the safe side.
        for counters, key, cost in leased[: len(decisions)]:
            counters.put_back(key, cost)
        return None

    def clear(self) -> None:
        """See `RedisStore.clear`. Other instances keep the leases that they hold."""
        self.give_back()
        self.redis.clear()

    # Leases -----------------------------------------------------------------------------

    def give_back(self) -> None:
        """Return all leases now, for example before an instance is drained.

        Keys that are asked for afterwards are leased again.
        """
        self._renewal.give_back(_leases(self._leased))

    def return_on_signal(self, signum: int = signal.SIGTERM) -> None:
        """Return all leases when this process gets a signal, and then do what it did before.

        For programs that would end by it without cleaning up; servers such as gunicorn and
        uvicorn have handlers of their own, which stay in force. Call it in the main thread.
        """
        return_on_signal(self, signum)

    def holders(self, limit: Limit | str, key: str, name: str | None = None) -> list[Holder]:
        """Who holds units of a key now, in all processes, and how many. Asks the server.

        ``name`` is that of the limiter, if it has one.
        """
        if isinstance(limit, str):
            limit = Limit.parse(limit)
        counters = self.counters(limit, name)
        if not isinstance(counters, LeasedCounters):
            return []  # it is never leased
        holders: list[Holder] = counters.holders(key)
        return holders

    def leased_keys(self, most: int = 20) -> list[LeasedKey]:
        """The keys that this process leases, the busiest first, and who else holds units of them.

        Asks the server.
        """
        leases = sorted(_leases(self._leased), key=lambda lease: -lease.demand)[:most]
        if not leases:
            return []
        holders = self._renewal.holders_at([lease.places[1] for lease in leases])
        return [
            LeasedKey(str(each.counters.limit), each.key, each.available, each.demand, tuple(held))
            for each, held in zip(leases, holders, strict=True)
        ]

    def stats(self) -> LeaseStats:
        """Figures of this process."""
        renewal, leased = self._renewal, list(self._leased)
        journal, leases = renewal.journal, _leases(leased)
        return LeaseStats(
            leases=len(leases),
            held=sum(lease.available for lease in leases),
            decided_here=self._released_here + sum(each.decided_here for each in leased),
            decided_directly=(
                self._released_directly + sum(each.decided_directly for each in leased)
            ),
            calls=renewal.exchange.calls,
            messages=journal.messages,
            failures=journal.failures,
            granted=journal.granted,
            returned=journal.returned,
            lapsed=journal.lapsed,
            stretched=renewal.stretch.factor,
        )

    def after_fork(self) -> None:
        """In a child: the leases are the parent's."""
        for counters in self._leased:
            counters.forget()
        self._renewal.exchange.start_over()
        self._renewal.start_over()

    # The connection ---------------------------------------------------------------------

    def connect(self, timeout: float = 5.0) -> None:
        """See `RedisStore.connect`."""
        self.redis.connect(timeout)

    async def connect_async(self, timeout: float = 5.0) -> None:
        """See `RedisStore.connect_async`."""
        await self.redis.connect_async(timeout)

    @property
    def state(self) -> str:
        """See `RedisStore.state`."""
        return self.redis.state

    def subscribe(self, hook: Hook) -> None:
        """Have ``hook`` called with every event of the leases and of ``redis``."""
        self.redis.subscribe(hook)
        self._renewal.journal.hooks.add(hook)

    def unsubscribe(self, hook: Hook) -> None:
        """Have it called no more."""
        self.redis.unsubscribe(hook)
        self._renewal.journal.hooks.remove(hook)

    def close(self) -> None:
        """Return all leases, and close all connections, for good."""
        self._finalizer()
        self.redis.close()

    async def close_async(self) -> None:
        """Return all leases, stop the thread that renews them, and close the connections of this
        event loop.

        Threads and other loops may go on: a key that they ask for often is leased again.
        """
        await asyncio.to_thread(self._renewal.stop, _leases(self._leased))
        await self.redis.close_async()

    def __enter__(self) -> LeasedStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> LeasedStore:
        await self.connect_async()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close_async()

    def __repr__(self) -> str:
        return f"<LeasedStore {self.name}>"


def _checked(horizon: int) -> int:
    if not law.SHORTEST_HORIZON <= horizon <= law.LONGEST_HORIZON:
        raise ValueError(f"horizon is from 1ms to 1s, not {format_duration(horizon)}")
    return horizon


async def _ready(answer: Any) -> Any:
    return answer


def _direct(wanted: list[Item]) -> list[Any]:
    return [
        (counters.direct if isinstance(counters, LeasedCounters) else counters, key, cost)
        for counters, key, cost in wanted
    ]


def _leases(several: list[LeasedCounters]) -> list[Lease]:
    return [lease for counters in several for lease in list(counters.leases.values())]


def _close(renewal: Renewal, several: list[LeasedCounters]) -> None:
    renewal.close(_leases(several))
