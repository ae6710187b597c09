"""RegionCounters: the counters of one limit at a site, on the floor and the share that it has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Any

from penstock.decision import Decision
from penstock.durations import MILLISECOND
from penstock.errors import StoreError
from penstock.keys import region_prefix
from penstock.limits import Limit
from penstock.stores.base import ENDLESS, check_cost, check_key
from penstock.stores.redis.counters import RedisCounters
from penstock.stores.redis.operation import (
    CANCEL,
    DECIDES,
    HIT,
    PEEK,
    RESERVE,
    TAKES,
    KeyOperation,
)
from penstock.stores.redis.pending_call import AwaitableHit, TaskCall
from penstock.stores.redis.script import Policy
from penstock.stores.redis.store import RedisStore
from penstock.stores.regions.law import terms_of
from penstock.stores.regions.messages import Account, rule_of
from penstock.stores.regions.region import Region

_NO_FLOOR = "the home has not granted this region a floor yet"


class RegionCounters(RedisCounters):
    """As `RedisCounters`, by the numbers of the site; tells the region what is asked for."""

    def __init__(self, limit: Limit, site: RedisStore, region: Region, name: str | None) -> None:
        self.terms = terms_of(limit)
        self.region = region
        self._floor = region.agent.floor
        super().__init__(
            limit, site._settings, site._engines, f"{site.prefix}:region", site._tag, name
        )
        self._skip = len(region_prefix(site.prefix))

    def make_policy(self, now: int, started: int = 0) -> Policy:
        policy = Policy(self.limit, rule_of(self.terms, self._floor))
        rate, _ = self.terms.part(self._floor)
        policy.unit = -(-self.terms.span * MILLISECOND // rate)
        return policy

    def policy_at(self, now: int) -> Policy:
        floor = self.region.granted
        if floor is not None and floor != self._floor and self._is_enough(floor):
            self._floor = floor
            self._policy = self.make_policy(now)
        return self._policy

    @property
    def is_ready(self) -> bool:
        """Whether the region has a floor; until then, the failure policy decides."""
        floor = self.region.granted
        return floor is not None and self._is_enough(floor)

    def _is_enough(self, floor: int) -> bool:
        return min(self.terms.part(floor)) >= 1

    # For threads --------------------------------------------------------------------------

    def hit_many(self, keys: Iterable[str], cost: int) -> list[Decision]:
        self.region.start()
        if not self.is_ready:
            return [self.hit(key, cost) for key in keys]
        names = [check_key(key) for key in keys]
        decisions = super().hit_many(names, cost)
        return [self.seen(name, cost, each) for name, each in zip(names, decisions, strict=True)]

    def reserve(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        raise StoreError(
            "a site cannot reserve for later, as its share may have ended by then: use hit, or"
            " wait for an attempt to succeed"
        )

    def cancel(self, key: str, cost: int, mark: int, kept: int = 0) -> None:
        raise StoreError("a site cannot reserve for later, so there is nothing to cancel")

    def _ask(self, verb: str, key: str, cost: int, *more: Any) -> Any:
        self.region.start()
        if not self.is_ready:
            return self.without_floor(self.operation(verb, key, cost, *more))
        answer = super()._ask(verb, key, cost, *more)
        return self.seen(key, cost, answer, verb) if verb in DECIDES else answer

    # For coroutines -----------------------------------------------------------------------

    def submit(self, verb: str, *args: Any) -> Awaitable[Any]:
        if not self.region.started:
            return self._submit_later(verb, *args)
        if verb in (RESERVE, CANCEL):
            self.reserve("", 0)
        if verb == "hit_many":
            return self._hit_many_seen(*args)
        if verb == "clear":
            return super().submit(verb, *args)
        if not self.is_ready:
            return _ready(self.without_floor(self.operation(verb, *args)))
        if verb not in DECIDES:
            return super().submit(verb, *args)
        call = self._call(verb, *args)
        wait = partial(self._answer_seen, call)
        if verb in TAKES:
            return AwaitableHit(wait, partial(self._engines.drop, [call]))
        return wait()

    async def _submit_later(self, verb: str, *args: Any) -> Any:
        """The first call in this process: the floor is in the site's Redis."""
        await asyncio.to_thread(self.region.start)
        return await self.submit(verb, *args)

    async def _answer_seen(self, call: TaskCall) -> Any:
        answer, asked = await self._engines.answer(call), call.first
        return self.seen(asked.name, asked.cost, answer, asked.verb)

    async def _hit_many_seen(self, keys: Iterable[str], cost: int) -> list[Decision]:
        names = [check_key(key) for key in keys]
        if not self.is_ready:
            return [self.without_floor(self.operation(HIT, name, cost)) for name in names]
        decisions = await self._hit_many(names, cost)
        return [self.seen(name, cost, each) for name, each in zip(names, decisions, strict=True)]

    # What the region learns -----------------------------------------------------------------

    def without_floor(self, operation: KeyOperation) -> Any:
        """What the failure policy says; nothing is booked or given back."""
        if operation.verb not in DECIDES:
            return None
        return self._fallback.decide(operation, self.region.problem or _NO_FLOOR)

    def seen(self, key: str, cost: int, decision: Decision, verb: str = HIT) -> Decision:
        """Count what was asked for; the decision, flagged while the site is cut off."""
        if not isinstance(decision, Decision) or decision._mark < 0:
            return decision  # the failure policy's
        if verb != PEEK:
            policy, unit = self._policy, decision._unit
            needs_more = (
                not decision.allowed
                or unit != policy.unit  # it has a share already
                or 2 * decision._room < policy.rule.numbers["floor_burst"] * unit
            )
            self.offer(key, cost, needs_more)
        if self.region.is_cut_off and verb != PEEK:
            return decision.as_degraded(self.limit, decision._mark)
        return decision

    def offer(self, key: str, cost: int, needs_more: bool = True) -> None:
        """So many units were asked for."""
        account = Account(self.terms, self.redis_key(key)[self._skip :])
        watch = self.region.watch
        known = len(watch)
        watch.offer(account, check_cost(cost), start=needs_more)
        if needs_more and len(watch) != known:
            self.region.wake()

    def leased(self, key: str) -> None:
        """An instance is about to lease this key."""
        self.offer(key, 1)


async def _ready(answer: Any) -> Any:
    return answer
