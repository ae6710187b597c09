"""RedisCounters: the counters of one limit in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Any

from penstock.algorithms.words import NO_MARK
from penstock.decision import Decision
from penstock.limits import Limit
from penstock.stores.base import ENDLESS, check_cost, check_key
from penstock.stores.redis.clients import THREADS, make_client
from penstock.stores.redis.engines import Engines
from penstock.stores.redis.forgetting import forget_limit
from penstock.stores.redis.operation import (
    ATTEMPT,
    CANCEL,
    CHARGE,
    HIT,
    PEEK,
    REFUND,
    RESERVE,
    RESET,
    TAKES,
    KeyedCounters,
    KeyOperation,
    Tag,
)
from penstock.stores.redis.pending_call import AwaitableHit, Mailbox, TaskCall, ThreadCall
from penstock.stores.redis.settings import Settings

# How long one step of `clear` may take, in seconds.
_PATIENCE = 10.0


class RedisCounters(KeyedCounters):
    """Checks the arguments, and makes pending calls from them."""

    def __init__(
        self,
        limit: Limit,
        settings: Settings,
        engines: Engines,
        prefix: str,
        tag: Tag | None,
        name: str | None = None,
    ) -> None:
        super().__init__(limit, settings.clock, prefix, tag, name)
        self._settings = settings
        self._fallback = settings.fallback
        self._engines = engines

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
        self._give_back(REFUND, key, cost, mark, kept)

    def reserve(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        decision: Decision = self._ask(RESERVE, key, cost, patience)
        return decision

    def cancel(self, key: str, cost: int, mark: int, kept: int = 0) -> None:
        self._give_back(CANCEL, key, cost, mark, kept)

    def _give_back(self, verb: str, key: str, cost: int, mark: int, kept: int) -> None:
        if mark < NO_MARK:
            self._fallback.give_back(self.operation(verb, key, cost, mark, kept))
        else:
            self._ask(verb, key, cost, mark, kept)

    def leased(self, key: str) -> None:
        """This process is about to lease the key: some counters want to know."""

    def reset(self, key: str) -> None:
        self._ask(RESET, key, 1)

    def clear(self) -> None:
        with make_client(THREADS, self._settings.target, _PATIENCE, _PATIENCE) as client:
            forget_limit(
                client, self._prefix, self.limit.counted_as, self.name, self._tag is not None
            )
        self._fallback.clear(self)

    def hit_many(self, keys: Iterable[str], cost: int) -> list[Decision]:
        cost = check_cost(cost)
        names = [check_key(key) for key in keys]
        mailbox: Mailbox = Mailbox()
        calls = [ThreadCall(mailbox, [KeyOperation(self, name, HIT, cost)]) for name in names]
        return self._engines.ask(calls, mailbox)

    def _ask(self, verb: str, key: str, cost: int, mark: int = NO_MARK, kept: int = 0) -> Any:
        mailbox: Mailbox = Mailbox()
        operation = KeyOperation(self, check_key(key), verb, check_cost(cost), mark, kept)
        return self._engines.ask([ThreadCall(mailbox, [operation])], mailbox)[0]

    # For coroutines -----------------------------------------------------------------

    def submit(self, verb: str, *args: Any) -> Awaitable[Any]:
        if verb == "hit_many":
            return self._hit_many(*args)
        if verb == "clear":  # rare, and slow
            return asyncio.to_thread(self.clear)
        call = self._call(verb, *args)
        if verb in TAKES:
            engines = self._engines
            return AwaitableHit(partial(engines.answer, call), partial(engines.drop, [call]))
        # A peek may be given up. A charge or a refund happens even if its task is cancelled.
        return call.future if verb == PEEK else asyncio.shield(call.future)

    def operation(
        self, verb: str, key: str, cost: int = 1, mark: int = NO_MARK, kept: int = 0
    ) -> KeyOperation:
        """What to send for a verb of these counters, checked."""
        return KeyOperation(self, check_key(key), verb, check_cost(cost), mark, kept)

    def _call(
        self, verb: str, key: str, cost: int = 1, mark: int = NO_MARK, kept: int = 0
    ) -> TaskCall:
        """A call that was sent already, or done here."""
        cost, key = check_cost(cost), check_key(key)
        operation = KeyOperation(self, key, verb, cost, mark, kept)
        call = TaskCall(asyncio.get_running_loop(), [operation])
        if mark < NO_MARK:
            self._fallback.give_back(operation)
            call.settle(None)
        else:
            self._engines.put(call)
        return call

    async def _hit_many(self, keys: Iterable[str], cost: int) -> list[Decision]:
        cost, loop = check_cost(cost), asyncio.get_running_loop()
        names = [check_key(key) for key in keys]
        calls = [TaskCall(loop, [KeyOperation(self, name, HIT, cost)]) for name in names]
        for call in calls:
            self._engines.put(call)
        return await self._engines.answers(calls)
