"""Node: the calls to one server, those that wait to be sent and those under way.

Calls of one turn of the event loop are sent together at its end, in commands of at most
`MOST_A_COMMAND` decisions. Several commands may be under way, so that the server works on one
while this side reads the reply to another. Beyond `MOST_UNDER_WAY` decisions, calls wait: the
busier the server, the larger the commands.
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

from penstock.circuit import CLOSED
from penstock.decision import Decision
from penstock.events import Damaged
from penstock.stores.redis.address import Address
from penstock.stores.redis.connection import ConnectionLost
from penstock.stores.redis.groups import GroupRemainder, taken_by
from penstock.stores.redis.operation import KeyOperation
from penstock.stores.redis.pending_call import PendingCall, UnattendedCall, by_call
from penstock.stores.redis.server import Server
from penstock.stores.redis.server_errors import KeyWarnings, ServerError, redirection, server_error
from penstock.stores.redis.settings import Settings
from penstock.stores.redis.wire import LATE, REFRESH, Answer, decode, encode

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
        on_trouble: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.name = name
        self.server = Server(
            settings, loop, name, resolve, self.flush, self._drop_queue, on_trouble
        )
        self.queue: deque[PendingCall] = deque()
        self._redirect = redirect
        self._warnings = KeyWarnings(name)
        self._loop = loop
        self._degrade_call = settings.fallback.degrade
        self._missed = self.server.missed
        self._under_way = 0
        self._scheduled = False

    @property
    def busy(self) -> bool:
        """Whether any call waits for it."""
        return bool(self.queue) or self._under_way > 0

    # Sending ------------------------------------------------------------------------

    def put(self, call: PendingCall) -> None:
        """Send it, with others, at the end of this turn of the loop."""
        call.missed, server = self._missed, self.server
        if server.closed:
            self._degrade_call(call, "the store was closed")
        elif server.breaker.state != CLOSED:
            self._degrade_call(call, server.breaker.reason)
        elif len(self.queue) >= self.settings.max_pending:
            self._degrade_call(call, f"{len(self.queue)} decisions are waiting already")
        else:
            self.queue.append(call)
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._scheduled = False
        connection = self.server.connection
        if connection is None:
            self.server.reconnector.start()
            return
        if connection.is_closing:
            return  # it ended while it was idle: the server is about to learn of it
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
        connection, script = self.server.connection, self.settings.script
        assert connection is not None
        now = self.settings.clock.now()
        operations: list[KeyOperation] = []
        for call in calls:
            for operation in call.operations:
                operation.policy = operation.counters.policy_at(now)
                operations.append(operation)
        # In the server's time, so that a command that comes too late has no effect.
        due = min([call.due for call in calls])
        deadline = script.deadline(self.server.clock.at(int(due * 1e9)))
        head = ("EVAL", script.text) if whole_script else ("EVALSHA", script.sha)
        arguments = encode(operations, deadline)
        data = hiredis.pack_command((*head, *arguments, *script.more_arguments()))
        if calls[0].asking:
            connection.send(hiredis.pack_command(("ASKING",)), _ignore)
        self._under_way += len(operations)
        connection.send(data, partial(self._received, calls, operations))

    # Receiving ----------------------------------------------------------------------

    def _received(
        self, calls: list[PendingCall], operations: list[KeyOperation], reply: Any
    ) -> None:
        self._under_way -= len(operations)
        if self.queue:
            self._schedule()
        if type(reply) is list:
            try:
                now, answers = decode(reply, operations)
            except ValueError as error:
                self._degrade(calls, "its answer is not the script's")
                self.server.down(str(error))
                return
            self.server.breaker.answered()
            self.server.set_clocks(now)
            for call, answer, several in by_call(calls, answers):
                self._answered(call, answer, several, now)
        elif isinstance(reply, ConnectionLost):
            self._degrade(calls, str(reply))
        elif isinstance(reply, Exception):
            self.server.breaker.answered()
            self._failed(calls, reply)
        else:
            self._degrade(calls, "its answer is not the script's")
            self.server.down(f"not an answer of the script: {reply!r:.100}")

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
        if kind is ServerError.NO_SCRIPT and self.server.connection is not None:
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
                self.server.down(reason)
            elif kind is ServerError.UNAVAILABLE:
                self.server.on_trouble()

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
            fallback = self.settings.fallback
            decision = fallback.decide(operation, reason)
            if decision:
                self.put(GroupRemainder(call, at, decision, fallback))
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
            self._degrade_call(call, reason)

    def _drop_queue(self, reason: str) -> None:
        self._degrade([*self.queue], reason)
        self.queue.clear()


def _ignore(reply: Any) -> None:
    """The reply to ASKING: if it failed, the command after it fails, too."""
