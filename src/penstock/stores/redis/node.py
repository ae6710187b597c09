"""Node: one server, the connection to it, the calls that wait to be sent and those under way.

Calls that come in one turn of the event loop leave together at its end, in commands of at most
`MOST_A_COMMAND` decisions. Several commands may be under way, so that the server works on one
while this side reads the reply to another. Beyond `MOST_UNDER_WAY` decisions the next calls
wait, and so gather in larger commands the busier the server is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import hiredis

from penstock.decision import Decision
from penstock.events import Damaged, StoreDown, StoreUp
from penstock.stores.redis.address import Address
from penstock.stores.redis.breaker import CLOSED, Breaker
from penstock.stores.redis.connection import Connection, ConnectionLost
from penstock.stores.redis.groups import taken_by
from penstock.stores.redis.handshake import handshake
from penstock.stores.redis.pending_call import (
    GroupRemainder,
    KeyOperation,
    PendingCall,
    UnattendedCall,
    by_call,
)
from penstock.stores.redis.reconnect import Reconnector
from penstock.stores.redis.server_clock import ServerClock
from penstock.stores.redis.server_errors import KeyWarnings, ServerError, redirection, server_error
from penstock.stores.redis.settings import Settings
from penstock.stores.redis.wire import LATE, REFRESH, Answer, Operation, decode, encode

MOST_A_COMMAND = 32
MOST_UNDER_WAY = 128
MOST_TRIES = 8

logger = logging.getLogger("penstock.redis")

# Where to send a call that this node cannot answer: (call, slot, host, port, once).
Redirect = Callable[[PendingCall, int, str, int, bool], None]


class Node:
    """Sends calls to one server and settles them."""

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        name: str,
        resolve: Callable[[], Awaitable[Address]],
        redirect: Redirect | None = None,
        on_trouble: Callable[[], None] | None = None,
    ) -> None:
        self.settings = settings
        self.name = name
        self.connection: Connection | None = None
        self.clock = ServerClock()
        self.breaker = Breaker(settings.deadline)
        self.queue: deque[PendingCall] = deque()
        self._resolve = resolve
        self._redirect = redirect
        self._on_trouble = on_trouble
        self._warnings = KeyWarnings(name)
        self._loop = loop
        self._reconnector = Reconnector(loop, self.breaker, self._connect, self.down)
        self._closed = False
        self._under_way = 0
        self._scheduled = False

    @property
    def busy(self) -> bool:
        """Whether any call waits for it."""
        return bool(self.queue) or self._under_way > 0

    @property
    def connecting(self) -> bool:
        return self._reconnector.active

    # Sending ------------------------------------------------------------------------

    def put(self, call: PendingCall) -> None:
        """Send it, with others, at the end of this turn of the loop."""
        call.node = self
        if self._closed:
            self.settings.degrade(call, "the store was closed")
        elif self.breaker.state != CLOSED:
            self.settings.degrade(call, self.breaker.reason)
        elif len(self.queue) >= self.settings.max_pending:
            self.settings.degrade(call, f"{len(self.queue)} decisions are waiting already")
        else:
            self.queue.append(call)
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._scheduled = False
        if self.connection is None:
            self._reconnector.start()
            return
        if self.connection.is_closing:
            return  # it ended while it was idle: `_lost` is about to be called
        while self.queue and self._under_way < MOST_UNDER_WAY:
            for calls in self._take():
                self._send(calls)

    def _take(self) -> list[list[PendingCall]]:
        """The next calls, by command: one for each slot, and one for each that goes alone."""
        queue, count = self.queue, 0
        alone: list[list[PendingCall]] = []
        by_slot: dict[int, list[PendingCall]] = {}
        while queue and (count == 0 or count + len(queue[0].operations) <= MOST_A_COMMAND):
            call = queue.popleft()
            if call.settled:  # its deadline passed, or its caller left
                continue
            count += len(call.operations)
            if call.alone:
                alone.append([call])
            else:
                by_slot.setdefault(call.slot, []).append(call)
        return [*by_slot.values(), *alone]

    def _send(self, calls: list[PendingCall], whole_script: bool = False) -> None:
        """In one command, now."""
        connection, script = self.connection, self.settings.script
        assert connection is not None
        now = self.settings.clock.now()
        operations: list[Operation] = []
        for call in calls:
            for operation in call.operations:
                operation.policy = operation.counters.policy_at(now)
                operations.append(operation)
        # In the server's time, so that a command that comes too late has no effect.
        due = min([call.due for call in calls])
        deadline = script.deadline(self.clock.at(int(due * 1e9)))
        head = ("EVAL", script.text) if whole_script else ("EVALSHA", script.sha)
        arguments = encode(operations, deadline)
        data = hiredis.pack_command((*head, *arguments, *script.more_arguments()))
        if calls[0].asking:
            connection.send(hiredis.pack_command(("ASKING",)), _ignore)
        self._under_way += len(operations)
        connection.send(data, partial(self._received, calls, operations))

    # Receiving ----------------------------------------------------------------------

    def _received(self, calls: list[PendingCall], operations: list[Operation], reply: Any) -> None:
        self._under_way -= len(operations)
        if self.queue:
            self._schedule()
        if type(reply) is list:
            try:
                now, answers = decode(reply, operations)
            except ValueError as error:
                self._degrade(calls, "its answer is not the script's")
                self.down(str(error))
                return
            self.breaker.answered()
            self._set_clocks(now)
            for call, answer, several in by_call(calls, answers):
                self._answered(call, answer, several, now)
        elif isinstance(reply, ConnectionLost):
            self._degrade(calls, str(reply))
        elif isinstance(reply, Exception):
            self.breaker.answered()
            self._failed(calls, reply)
        else:
            self._degrade(calls, "its answer is not the script's")
            self.down(f"not an answer of the script: {reply!r:.100}")

    def _answered(self, call: PendingCall, answer: Any, several: list[Answer], now: int) -> None:
        if type(answer) is Decision or type(answer) is list or answer is None:
            if not call.settle(answer) and call.abandoned:
                self._give_back(call, answer)
        elif isinstance(answer, Exception):
            if call.is_group:
                self._group_failed(call, several)
            else:
                self._failed([call], answer)
        else:
            assert answer is LATE or answer is REFRESH
            if answer is REFRESH:
                for operation in call.operations:
                    operation.counters.renew_policy(now)
            self._retry(call, answer.value)

    def _give_back(self, call: PendingCall, answer: Any) -> None:
        """A hit that was cancelled while it was under way takes nothing."""
        for operation in taken_by(call, answer):
            refund = UnattendedCall([operation])
            refund.due, refund.slot = time.monotonic() + self.settings.deadline, call.slot
            self.put(refund)

    def _failed(self, calls: list[PendingCall], error: Exception) -> None:
        """The server answered a command, or one operation, with an error."""
        kind, reason = server_error(error), str(error)
        if kind is ServerError.NO_SCRIPT and self.connection is not None:
            again = [call for call in calls if self._may_retry(call, reason)]
            if again:
                self._send(again, whole_script=True)
        elif kind in (ServerError.MOVED, ServerError.ASK) and self._redirect is not None:
            slot, host, port = redirection(error)
            for call in calls:
                if self._may_retry(call, reason):
                    self._redirect(call, slot, host, port, kind is ServerError.ASK)
        elif kind is ServerError.TRY_AGAIN:
            for call in calls:
                call.alone = True
                # If it was alone already, leave time for the slot to move on.
                self._retry(call, reason, self.settings.deadline / 10 if len(calls) == 1 else 0)
        elif kind is ServerError.DAMAGED:
            for call in calls:
                self._damaged(call.first)
                self._retry(call, reason)
        else:
            if kind is ServerError.FOREIGN:
                for call in calls:
                    self._warnings.warn(call.first.key, f"is not Penstock's: {error}")
            elif kind is ServerError.WRONG:
                logger.error("%s answered with an error: %s", self.name, self.settings.hide(reason))
            self._degrade(calls, reason)
            if kind is ServerError.LOST_MASTER:
                self.down(reason)
            elif kind is ServerError.UNAVAILABLE:
                self._report_trouble()

    def _group_failed(self, call: PendingCall, answers: list[Answer]) -> None:
        """One member could not be decided on, and nothing was taken from the others."""
        at = next(n for n, answer in enumerate(answers) if isinstance(answer, Exception))
        error, operation = answers[at], call.operations[at]
        assert isinstance(error, Exception)
        kind, reason = server_error(error), str(error)
        if kind is ServerError.DAMAGED:
            self._damaged(operation)
            self._retry(call, reason)
        elif kind is ServerError.FOREIGN and self._may_retry(call, reason):
            self._warnings.warn(operation.key, f"is not Penstock's: {error}")
            if call.settled:
                return
            decision = self.settings.decide(operation, reason)
            if decision:
                self.put(GroupRemainder(call, at, decision))
            else:
                self._degrade([call], reason)
        else:
            self._failed([call], error)

    def _damaged(self, operation: KeyOperation) -> None:
        self._warnings.warn(operation.key, "was invalid and starts afresh")
        self.settings.emit(Damaged(self.name, operation.counters.limit, operation.name))

    def _retry(self, call: PendingCall, reason: str, pause: float = 0) -> None:
        if self._may_retry(call, reason):
            if pause:
                self._loop.call_later(pause, self.put, call)
            else:
                self.put(call)

    def _may_retry(self, call: PendingCall, reason: str) -> bool:
        call.tries += 1
        if call.tries <= MOST_TRIES and time.monotonic() < call.due:
            return True
        self._degrade([call], reason)
        return False

    def _degrade(self, calls: list[PendingCall], reason: str) -> None:
        """Settle them by the failure policy."""
        for call in calls:
            self.settings.degrade(call, reason)

    # The connection -----------------------------------------------------------------

    def missed(self, now: float) -> None:
        """A call's deadline passed here."""
        if self.breaker.missed(now) and self.breaker.state == CLOSED:
            self.down(f"no answer within {self.settings.deadline * 1e3:g} ms")

    def down(self, reason: str) -> None:
        """Stop sending, and try to reconnect."""
        reason = self.settings.hide(reason)
        if self.breaker.trip(time.monotonic(), reason):
            self.settings.emit(StoreDown(self.name, reason))
        self._disconnect(reason)
        self._reconnector.start()
        self._reconnector.fail(f"{self.name}: {reason}")
        self._report_trouble()

    def _report_trouble(self) -> None:
        if self._on_trouble is not None:
            self._on_trouble()

    async def _connect(self) -> None:
        settings = self.settings
        async with asyncio.timeout(settings.connect_timeout):
            address = await self._resolve()
            connection = Connection(await address.open(settings.connect_timeout))
            try:
                self._set_clocks(await handshake(connection, settings.script, settings.deadline))
            except BaseException:
                connection.close()
                raise
        seconds = time.monotonic() - self.breaker.opened_at
        was_down = self.breaker.state != CLOSED
        self.connection = connection
        connection.on_lost = self._lost
        self.breaker.close()
        if was_down:
            settings.emit(StoreUp(self.name, seconds))
        self._reconnector.succeed()
        self.flush()

    def _set_clocks(self, now: int) -> None:
        here = time.monotonic_ns()
        self.clock.seen(now, here)
        if isinstance(self.settings.clock, ServerClock):
            self.settings.clock.seen(now, here)

    def _lost(self, reason: Exception) -> None:
        """The connection ended by itself: try a new one before the server counts as down."""
        self.connection = None
        self._reconnector.start()

    async def connected(self) -> None:
        """Wait for the first connection, or raise the reason why there is none."""
        if self.connection is None:
            await self._reconnector.wait()

    def retire(self) -> None:
        """Other nodes have taken its place; it does not count as down any more."""
        self.close()
        if self.breaker.state != CLOSED:
            self.settings.emit(StoreUp(self.name, time.monotonic() - self.breaker.opened_at))

    def close(self) -> None:
        self._closed = True
        self._reconnector.stop()
        self._disconnect("the store was closed")

    def _disconnect(self, reason: str) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.on_lost = None
            connection.close()
        self._degrade([*self.queue], reason)
        self.queue.clear()


def _ignore(reply: Any) -> None:
    """The reply to ASKING: if it failed, the command after it fails, too."""
