"""LeasedCounters: decides from a lease where there is one, and asks Redis where there is none.

A key without a lease is decided directly. If it is asked for often enough, it gets a lease in
the background, and is decided directly until that is there. So there is no moment at which a
key is decided by neither or by both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.algorithms.words import NO_MARK
from penstock.clock import Clock
from penstock.decision import Decision, decided
from penstock.stores.base import ENDLESS, Counters, check_cost, check_key
from penstock.stores.leased import law
from penstock.stores.leased.boottime import BOOT
from penstock.stores.leased.law import HOT, TAKEN, UNKNOWN, Terms
from penstock.stores.leased.lease import Lease

if TYPE_CHECKING:
    from penstock import _no_cython as cython  # which has types
else:
    try:
        import cython  # needed to compile this, not to run it
    except ModuleNotFoundError:
        from penstock import _no_cython as cython
if not cython.compiled:  # else it is the C function of that name, from the .pxd
    from penstock.stores.leased.boottime import boot_now

# So many keys are watched at a time for whether they become hot.
_WATCHED = 10_000
_SECOND = 1_000_000_000


class LeasedCounters(Counters):
    """The counters of one limit."""

    def __init__(
        self, direct: Counters, horizon: int, ttl: int | None, share: float, renewal: Any,
        clock: Clock,
    ) -> None:  # fmt: skip
        Counters.__init__(self, direct.limit, direct.clock)
        terms = law.terms_of(direct.limit, horizon, ttl, share)
        assert terms is not None, direct.limit
        self.direct = direct
        self.asked_horizon = horizon
        self.asked_ttl = ttl
        self.asked_share = share
        self.usual_terms: Terms = terms
        self.terms: Terms = terms  # those of today: see `stretch`
        self.stretched = 1
        self.leases: dict[str, Lease] = {}
        self.decided_here = 0
        self.decided_directly = 0
        self._renewal = renewal
        self._boot = clock
        self._system = clock is BOOT
        self._refills = terms.refills
        self._paced = direct.limit.algorithm == "leaky_bucket"
        self._horizon = terms.horizon
        self._burst = terms.burst
        self._unit = terms.interval if terms.refills else 1
        self._capacity = terms.burst * self._unit
        self._heat: dict[str, int] = {}
        self._heat_since = 0

    # Deciding ---------------------------------------------------------------------------

    def hit(self, key: str, cost: int) -> Decision:
        decision = self.here(key, cost)
        return self.direct.hit(key, cost) if decision is None else decision

    def attempt(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        # A waiter takes a place in the queue of a leaky bucket. Leases know of no places.
        decision = None if self._paced else self.here(key, cost)
        return self.direct.attempt(key, cost, patience) if decision is None else decision

    def whole(self) -> Counters:
        return self.direct

    def peek(self, key: str, cost: int) -> Decision:
        decision = None if self._paced else self.look(key, cost)
        return self.direct.peek(key, cost) if decision is None else decision

    def hit_many(self, keys: Iterable[str], cost: int) -> list[Decision]:
        names = [check_key(key) for key in keys]
        decisions = [self.here(name, cost) for name in names]
        rest = [name for name, seen in zip(names, decisions, strict=True) if seen is None]
        direct = iter(self.direct.hit_many(rest, cost) if rest else ())
        return [next(direct) if seen is None else seen for seen in decisions]

    def charge(self, key: str, cost: int) -> None:
        self.direct.charge(key, cost)

    def refund(self, key: str, cost: int, mark: int = NO_MARK, kept: int = 0) -> None:
        if not self.put_back(key, cost, mark):
            self.direct.refund(key, cost, mark, kept)

    def reserve(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        return self.direct.reserve(key, cost, patience)

    def cancel(self, key: str, cost: int, mark: int, kept: int = 0) -> None:
        self.direct.cancel(key, cost, mark, kept)

    def reset(self, key: str) -> None:
        self.leases.pop(check_key(key), None)
        self.direct.reset(key)

    def submit(self, verb: str, *args: Any) -> Awaitable[Any]:
        decision: Decision | None = None
        if verb == "hit" or (verb == "attempt" and not self._paced):
            decision = self.here(args[0], args[1])
        elif verb == "peek" and not self._paced:
            decision = self.look(args[0], args[1])
        elif verb == "hit_many":
            return self._submit_many(*args)
        elif verb == "refund" and self.put_back(*args[:3]):
            return _ready(None)
        elif verb == "reset":
            self.leases.pop(check_key(args[0]), None)
        return self.direct.submit(verb, *args) if decision is None else _ready(decision)

    async def _submit_many(self, keys: Iterable[str], cost: int) -> list[Decision]:
        names = [check_key(key) for key in keys]
        decisions = [self.here(name, cost) for name in names]
        rest = [name for name, seen in zip(names, decisions, strict=True) if seen is None]
        direct = iter(await self.direct.submit("hit_many", rest, cost) if rest else ())
        return [next(direct) if seen is None else seen for seen in decisions]

    # From the lease ---------------------------------------------------------------------

    def here(self, key: object, cost: object) -> Decision | None:
        """Decide, and take, from the lease; None if the key must be decided directly."""
        # What is no key and no cost is reported by the direct decision.
        if type(key) is not str or type(cost) is not int:
            return None
        units = 1
        if cost != 1:
            if not 1 <= cost <= self._burst:
                return None
            units = cost
        lease = self.leases.get(key)
        if lease is None:
            self.watch(key, units)
            return None
        now = boot_now() if self._system else self._boot.now()
        outcome = lease.spend(units, now)
        if not lease.asking and (
            outcome == UNKNOWN or (lease.available <= lease.low and lease.closed_until == 0)
        ):
            lease.asking = True
            self._renewal.ask(lease)
        if outcome == UNKNOWN:
            self.decided_directly += 1
            return None
        self.decided_here += 1
        return self.decision(lease, outcome == TAKEN, now, units)

    def look(self, key: object, cost: object) -> Decision | None:
        """What `here` would say, and what is left now."""
        lease = self.leases.get(key) if type(key) is str else None
        if lease is None:
            return None
        units, now = check_cost(cost), self._boot.now()
        if now < lease.deadline and lease.available >= units:
            return self.decision(lease, True, now, 0)
        if now < lease.closed_until and units <= lease.usual:
            return self.decision(lease, False, now, 0)
        return None

    def decision(self, lease: Lease, allowed: bool, now: int, taken: int) -> Decision:
        """Its numbers: what is in hand here, and what the bank had when it was last asked."""
        unit = self._unit
        room = lease.available * unit + (lease.room if lease.room > 0 else 0)
        if room > self._capacity:
            room = self._capacity
        reset = self._capacity - room if self._refills else lease.window_end - now
        retry = 0
        if not allowed:
            retry = (lease.retry_at if self._refills else lease.window_end) - now
            if retry < unit:
                retry = unit
        delay = 0
        if self._paced and allowed and reset > taken * unit:
            delay = reset - taken * unit
        return decided(self.limit, allowed, room, unit, retry, reset, delay, False, lease.mark)

    def offer(self, key: str, cost: int, directly: bool) -> None:
        """Count a hit that was decided together with others, directly or by looks."""
        lease = self.leases.get(key)
        if lease is None:
            self.watch(key, cost)
            return
        lease.offered += cost
        if directly:
            self.decided_directly += 1
        else:
            self.decided_here += 1
        if not lease.asking and lease.available <= lease.low and lease.closed_until == 0:
            lease.asking = True
            self._renewal.ask(lease)

    def put_back(self, key: str, cost: int, mark: int = NO_MARK) -> bool:
        """Give units back to the lease; whether that could be done."""
        lease = self.leases.get(check_key(key))
        if lease is None or mark < NO_MARK:  # less: it was taken from no server
            return False
        if mark != NO_MARK:
            if self._refills:
                if self.clock.now() > mark:
                    return False  # some of it has come back by itself
            elif mark != lease.mark:
                return False  # another window's
        return lease.put_back(check_cost(cost), self._boot.now())

    # Becoming hot -----------------------------------------------------------------------

    def watch(self, key: str, cost: int) -> None:
        """Count a direct decision; a key with many of them within a horizon gets a lease."""
        self.decided_directly += 1
        now, heat = self._boot.now(), self._heat
        if now - self._heat_since >= self._horizon:
            heat.clear()
            self._heat_since = now
        count = heat.get(key, 0) + 1
        if count >= HOT and key:
            heat.pop(key, None)
            self._renewal.lease(self, key, count * cost * _SECOND // self._horizon)
        elif len(heat) < _WATCHED:
            heat[key] = count

    def holders(self, key: str) -> Any:
        """Who holds leases of ``key``, in all processes: see `LeasedStore.holders`."""
        return self._renewal.holders(self, check_key(key))

    def stretch(self, factor: int) -> None:
        """Lease for ``factor`` times as long from now on, as far as the limit allows."""
        limit, terms = self.limit, self.usual_terms
        if factor > 1:
            asked = self.asked_horizon, self.asked_ttl, factor, self.asked_share
            terms = law.stretched(limit, *asked) or terms
        self.terms, self.stretched = terms, factor

    def forget(self) -> None:
        """Drop all leases without giving them back: they are another process's."""
        self.leases.clear()
        self._heat.clear()


async def _ready(answer: Any) -> Any:
    return answer
