"""PendingCall: operations that are sent to the script together, and who waits for the answer.

A call is settled once: by the server's answer, by its deadline, or because its caller has left.
Anything that comes later has no effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from queue import SimpleQueue
from typing import Any

from penstock.stores.redis.operation import TAKES, KeyOperation
from penstock.stores.redis.wire import LATE, REFRESH, Answer


class PendingCall:
    """One operation, or a group that passes as a whole; how to send it, and until when."""

    due = 0.0
    missed: Callable[[float], None] | None = None  # to be called if the deadline passes
    slot = 0
    tries = 0
    alone = False  # not in one command with other calls
    asking = False  # a node that is just getting the slot

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
        """Whether the caller may `resolve` it: of several threads, only one may."""
        raise NotImplementedError

    def resolve(self, answer: Any) -> None:
        """Pass the answer on, after having claimed the call."""
        raise NotImplementedError


class TaskCall(PendingCall):
    """For a task, which awaits ``future``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, operations: list[KeyOperation]) -> None:
        self.operations = operations  # without super(): this runs for every decision
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

    __slots__ = ("_wait", "cancel")

    def __init__(
        self, wait: Callable[[], Coroutine[Any, Any, Any]], cancel: Callable[[], None]
    ) -> None:
        self._wait = wait
        self.cancel = cancel  # to be called if nobody will await it

    def __await__(self) -> Generator[Any, None, Any]:
        return self._wait().__await__()


# Where a thread waits for one of two messages.
Mailbox = SimpleQueue[str]
SETTLED = "settled"
DRIVE = "drive"


class ThreadCall(PendingCall):
    """For a thread, which waits at its mailbox or drives the loop: see thread_loop.py."""

    abandoned = False

    def __init__(self, mailbox: Mailbox, operations: list[KeyOperation]) -> None:
        super().__init__(operations)
        self.mailbox = mailbox
        self.stop_loop: Callable[[], None] | None = None  # if its thread drives the loop
        self._answer: Any = None
        self._claims = [None]  # the thread that pops it settles the call: pop is atomic
        self.answered = False  # set when the answer is written, which is a moment later

    @property
    def settled(self) -> bool:
        return not self._claims

    def abandon(self) -> None:
        """The thread was interrupted: a hit takes nothing, other operations still happen."""
        if self.first.verb in TAKES and self.claim():
            self.abandoned = True

    @property
    def outcome(self) -> Any:
        return None if isinstance(self._answer, Exception) else self._answer

    def claim(self) -> bool:
        try:
            self._claims.pop()
        except IndexError:
            return False
        return True

    def resolve(self, answer: Any) -> None:
        self._answer = answer
        self.answered = True
        self.mailbox.put(SETTLED)
        if self.stop_loop is not None:
            self.stop_loop()

    def result(self) -> Any:
        """The answer, once it is there."""
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class UnattendedCall(PendingCall):
    """For what the store does by itself: nobody waits for the answer."""

    settled = False

    def claim(self) -> bool:
        return not self.settled

    def resolve(self, answer: Any) -> None:
        self.settled = True


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
