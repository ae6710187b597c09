"""RedisCounters: the counters of one limit in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock import keys
from penstock.algorithms.words import NO_MARK
from penstock.decision import Decision
from penstock.limit import Limit
from penstock.stores.base import ENDLESS, Counters, check_cost, check_key
from penstock.stores.redis.pending_call import (
    AwaitableHit,
    KeyOperation,
    Mailbox,
    TaskCall,
    ThreadCall,
)
from penstock.stores.redis.script import Policy, policy
from penstock.stores.redis.wire import ATTEMPT, CHARGE, HIT, PEEK, REFUND, RESET, TAKES

if TYPE_CHECKING:
    from penstock.stores.redis.store import RedisStore

Tag = Callable[[str], str]


def as_tag(tag: str | Tag | None) -> Tag | None:
    """A function of the key, also if the tag is one text for all."""
    if tag is None or callable(tag):
        return tag
    fixed = check_key(tag)
    return lambda key: fixed


class RedisCounters(Counters):
    """Checks the arguments, and makes pending calls from them."""

    def __init__(self, limit: Limit, store: RedisStore, prefix: str, tag: Tag | None) -> None:
        super().__init__(limit, store.clock)
        self._store = store
        self._tag = tag
        self._prefix = prefix
        self._head = keys.counter_head(prefix, limit.counted_as)
        self._started: int | None = None
        # Made now, so that a limit that Redis cannot hold is an error now.
        self._policy = policy(limit, store.clock.now())

    # What an operation needs --------------------------------------------------------

    def redis_key(self, name: str) -> bytes:
        if self._tag is None:
            return keys.counter_key(self._head, name)
        tag = check_key(self._tag(name))
        return keys.counter_key(keys.counter_head(self._prefix, self.limit.counted_as, tag), name)

    def policy_at(self, now: int) -> Policy:
        """The policy to send when the server's clock shows ``now``."""
        if self._started is None:
            self.renew_policy(now)
        return self._policy

    def renew_policy(self, now: int) -> None:
        """The script asks for this when the policy's calendar does not cover the present."""
        if self._started is None:
            self._started = now  # a warm-up begins with the first hit that is sent
        self._policy = policy(self.limit, now, self._started)

    def give_back_here(self, name: str, cost: int, decision: Decision) -> None:
        """Give back what a degraded decision took in this process."""
        self._store.fallback.refund_here(self, name, cost, decision._mark, 0)

    # For threads --------------------------------------------------------------------

    def hit(self, key: str, cost: int) -> Decision:
        decision: Decision = self._ask(HIT, key, cost)
        return decision

    def peek(self, key: str, cost: int) -> Decision:
        decision: Decision = self._ask(PEEK, key, cost)
        return decision

    def attempt(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        decision: Decision = self._ask(ATTEMPT, key, cost, patience)
        return decision

    def charge(self, key: str, cost: int) -> None:
        self._ask(CHARGE, key, cost)

    def refund(self, key: str, cost: int, mark: int = NO_MARK, kept: int = 0) -> None:
        if mark < NO_MARK:
            self._store.fallback.refund_here(self, check_key(key), check_cost(cost), mark, kept)
        else:
            self._ask(REFUND, key, cost, mark, kept)

    def reset(self, key: str) -> None:
        self._ask(RESET, key, 1)

    def hit_many(self, keys: Iterable[str], cost: int) -> list[Decision]:
        cost = check_cost(cost)
        names = [check_key(key) for key in keys]
        mailbox: Mailbox = Mailbox()
        calls = [ThreadCall(mailbox, [KeyOperation(self, name, HIT, cost)]) for name in names]
        return self._store.ask_for_all(calls, mailbox)

    def _ask(self, verb: str, key: str, cost: int, mark: int = NO_MARK, kept: int = 0) -> Any:
        mailbox: Mailbox = Mailbox()
        operation = KeyOperation(self, check_key(key), verb, check_cost(cost), mark, kept)
        return self._store.ask_for_all([ThreadCall(mailbox, [operation])], mailbox)[0]

    # For coroutines -----------------------------------------------------------------

    def submit(self, verb: str, *args: Any) -> Awaitable[Any]:
        if verb == "hit_many":
            return self._hit_many(*args)
        call = self._call(verb, *args)
        if verb in TAKES:
            return AwaitableHit(partial(self._store.hit, call), partial(self._store.drop, [call]))
        # A peek may be given up. A charge or a refund happens even if its task is cancelled.
        return call.future if verb == PEEK else asyncio.shield(call.future)

    def _call(
        self, verb: str, key: str, cost: int = 1, mark: int = NO_MARK, kept: int = 0
    ) -> TaskCall:
        """A call that was sent already, or done here."""
        cost, key = check_cost(cost), check_key(key)
        operation = KeyOperation(self, key, _VERBS[verb], cost, mark, kept)
        call = TaskCall(asyncio.get_running_loop(), [operation])
        if mark < NO_MARK:
            self._store.fallback.refund_here(self, key, cost, mark, kept)
            call.settle(None)
        else:
            self._store.put(call)
        return call

    async def _hit_many(self, keys: Iterable[str], cost: int) -> list[Decision]:
        cost, loop = check_cost(cost), asyncio.get_running_loop()
        names = [check_key(key) for key in keys]
        calls = [TaskCall(loop, [KeyOperation(self, name, HIT, cost)]) for name in names]
        for call in calls:
            self._store.put(call)
        return await self._store.hits(calls)


_VERBS = {
    "hit": HIT, "peek": PEEK, "attempt": ATTEMPT,
    "charge": CHARGE, "refund": REFUND, "reset": RESET,
}  # fmt: skip
