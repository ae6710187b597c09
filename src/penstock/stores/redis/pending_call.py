"""PendingCall: operations that were sent to the script, and whoever waits for the answer.

A call is settled once: by the server's answer, by its deadline, or because whoever waited for
it has left. Anything that comes later finds it settled and does nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from penstock.algorithms.words import NO_MARK
from penstock.decision import Decision
from penstock.stores.redis.script import Policy
from penstock.stores.redis.wire import HIT, LATE, REFRESH, TAKES, Answer, Operation

if TYPE_CHECKING:
    from penstock.stores.redis.counters import RedisCounters
    from penstock.stores.redis.node import Node

_NO_POLICY = Policy.__new__(Policy)


class KeyOperation(Operation):
    """An operation on the key ``name`` of some counters, which know its policy when it is sent."""

    __slots__ = ("counters", "name")

    def __init__(
        self,
        counters: RedisCounters,
        name: str,
        verb: str = HIT,
        cost: int = 1,
        mark: int = NO_MARK,
        kept: int = 0,
        size: int = 1,
    ) -> None:
        # Without super(): one is made for every decision.
        self.counters = counters
        self.name = name
        self.key = counters.redis_key(name)
        self.policy = _NO_POLICY
        self.verb = verb
        self.cost = cost
        self.mark = mark
        self.kept = kept
        self.size = size


class PendingCall:
    """One operation, or a group that passes as a whole; how to send it, and until when."""

    due = 0.0
    node: Node | None = None
    slot = 0
    tries = 0
    alone = False  # in a command of its own
    asking = False  # of a node that is just getting the slot

    def __init__(self, operations: list[KeyOperation]) -> None:
        self.operations = operations
        self.first = operations[0]

    @property
    def is_group(self) -> bool:
        return len(self.operations) > 1

    @property
    def settled(self) -> bool:
        raise NotImplementedError

    @property
    def abandoned(self) -> bool:
        """Whether the caller left without an answer."""
        return False

    @property
    def outcome(self) -> Any:
        """The answer; None if there is none yet, or an error."""
        return None

    def settle(self, answer: Any) -> bool:
        """Answer it, with a value or an Exception; False if it was settled already."""
        if not self.claim():
            return False
        self.resolve(answer)
        return True

    def claim(self) -> bool:
        """Whether it is the caller's to `resolve`: of many threads, one may."""
        raise NotImplementedError

    def resolve(self, answer: Any) -> None:
        """Pass the answer on, after having claimed the call."""
        raise NotImplementedError


class TaskCall(PendingCall):
    """For a task, which awaits ``future``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, operations: list[KeyOperation]) -> None:
        self.operations = operations  # without super(): one is made for every decision
        self.first = operations[0]
        self.future: asyncio.Future[Any] = loop.create_future()

    @property
    def settled(self) -> bool:
        return self.future.done()

    @property
    def abandoned(self) -> bool:
        return self.future.cancelled()

    @property
    def outcome(self) -> Any:
        future = self.future
        decided = future.done() and not future.cancelled() and future.exception() is None
        return future.result() if decided else None

    def claim(self) -> bool:
        return not self.future.done()

    def resolve(self, answer: Any) -> None:
        if isinstance(answer, Exception):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)


class AwaitableHit(Awaitable[Any]):
    """Hits that were sent already. Unless they are awaited to the end, they take nothing."""

    __slots__ = ("_drop", "_wait")

    def __init__(
        self, wait: Callable[[], Coroutine[Any, Any, Any]], drop: Callable[[], None]
    ) -> None:
        self._wait = wait
        self._drop = drop

    def __await__(self) -> Generator[Any, None, Any]:
        return self._wait().__await__()

    def cancel(self) -> None:
        """Nobody will await it."""
        self._drop()


# Where a thread waits for one of two messages.
Mailbox = SimpleQueue[str]
SETTLED = "settled"
DRIVE = "drive"


class ThreadCall(PendingCall):
    """For a thread, which waits at its mailbox or drives the loop: see thread_loop.py."""

    def __init__(self, mailbox: Mailbox, operations: list[KeyOperation]) -> None:
        super().__init__(operations)
        self.mailbox = mailbox
        self.stop_loop: Callable[[], None] | None = None  # if its thread drives the loop
        self._abandoned = False
        self._answer: Any = None
        self._error: Exception | None = None
        self._claims = [None]  # whoever pops it settles the call: atomic in any thread
        self.answered = False  # set when the answer is written, which is a moment later

    @property
    def settled(self) -> bool:
        return not self._claims

    @property
    def abandoned(self) -> bool:
        return self._abandoned

    def abandon(self) -> None:
        """The thread was interrupted. A hit takes nothing then; all else still happens."""
        if self.first.verb in TAKES and self.claim():
            self._abandoned = True

    @property
    def outcome(self) -> Any:
        return self._answer

    def claim(self) -> bool:
        try:
            self._claims.pop()
        except IndexError:
            return False
        return True

    def resolve(self, answer: Any) -> None:
        if isinstance(answer, Exception):
            self._error = answer
        else:
            self._answer = answer
        self.answered = True
        self.mailbox.put(SETTLED)
        if self.stop_loop is not None:
            self.stop_loop()

    def result(self) -> Any:
        """The answer, once it is there."""
        if self._error is not None:
            raise self._error
        return self._answer


class GroupRemainder(PendingCall):
    """A group without one member, on which the failure policy has decided."""

    def __init__(self, whole: PendingCall, at: int, decision: Decision) -> None:
        first, *others = [one for number, one in enumerate(whole.operations) if number != at]
        size = 1 + len(others)
        first = KeyOperation(first.counters, first.name, first.verb, first.cost, size=size)
        super().__init__([first, *others])
        self.due, self.slot, self.tries = whole.due, whole.slot, whole.tries
        self._whole, self._at, self._decision = whole, at, decision

    @property
    def settled(self) -> bool:
        return self._whole.settled

    @property
    def abandoned(self) -> bool:
        return self._whole.abandoned

    def claim(self) -> bool:
        return self._whole.claim()

    def resolve(self, answer: Any) -> None:
        if not isinstance(answer, Exception):
            answer = [answer] if isinstance(answer, Decision) else [*answer]
            if not all(answer):
                missing = self._whole.operations[self._at]
                missing.counters.give_back_here(missing.name, missing.cost, self._decision)
            answer.insert(self._at, self._decision)
        self._whole.resolve(answer)


class UnattendedCall(PendingCall):
    """For nobody: what the store does on its own account."""

    def __init__(self, operations: list[KeyOperation]) -> None:
        super().__init__(operations)
        self._settled = False

    @property
    def settled(self) -> bool:
        return self._settled

    def claim(self) -> bool:
        return not self._settled

    def resolve(self, answer: Any) -> None:
        self._settled = True


def by_call(
    calls: list[PendingCall], answers: list[Answer]
) -> Iterator[tuple[PendingCall, Any, list[Answer]]]:
    """Each call with its answer, and with those of all its operations.

    A group's answer is the list of its members' decisions, or whatever prevented them. If it
    was refused, the decisions on members that would have passed are those of a peek.
    """
    at = 0
    for call in calls:
        if len(call.operations) == 1:
            yield call, answers[at], answers[at : at + 1]
            at += 1
        else:
            several = answers[at : at + len(call.operations)]
            yield call, next(filter(_prevents, several), several), several
            at += len(several)


def _prevents(answer: Answer) -> bool:
    return isinstance(answer, Exception) or answer is LATE or answer is REFRESH
