"""Ticket: a request to the script together with whoever waits for its answer.

A ticket is settled once: by the server's answer, by its deadline, or by whoever waits
having left. What comes later finds it settled and does nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from penstock.algorithms.words import NO_MARK
from penstock.decision import Decision
from penstock.stores.redis.script import Policy
from penstock.stores.redis.wire import HIT, LATE, REFRESH, TAKES, Answer, Request

if TYPE_CHECKING:
    from penstock.stores.redis.counters import RedisCounters
    from penstock.stores.redis.node import Node


class Question(Request):
    """A request that knows its counters, which know its policy when it is sent."""

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
        super().__init__(counters.redis_key(name), NO_POLICY, verb, cost, mark, kept, size)
        self.counters = counters
        self.name = name


NO_POLICY = Policy.__new__(Policy)


class Ticket(Question):
    """The question, or the first of a group that passes as a whole; who waits, until when."""

    __slots__ = ("alone", "asking", "due", "members", "node", "slot", "tries")

    # The others of its group.
    members: Sequence[Question]

    def __init__(
        self,
        counters: RedisCounters,
        name: str,
        verb: str = HIT,
        cost: int = 1,
        mark: int = NO_MARK,
        kept: int = 0,
        members: Sequence[Question] = (),
    ) -> None:
        # All in one place: one is made for every decision, and three calls to make it
        # would cost a tenth of what this side takes for one.
        self.key = counters.redis_key(name)
        self.policy = NO_POLICY
        self.verb = verb
        self.cost = cost
        self.mark = mark
        self.kept = kept
        self.size = 1 + len(members)
        self.counters = counters
        self.name = name
        self.members = members
        self.due = 0.0
        self.node: Node | None = None
        self.slot = 0
        self.tries = 0
        self.alone = False  # in a call of its own
        self.asking = False  # of a node that is just getting the slot

    @property
    def questions(self) -> list[Question]:
        return [self, *self.members]

    @property
    def settled(self) -> bool:
        raise NotImplementedError

    @property
    def abandoned(self) -> bool:
        """Whoever waited left of their own accord and was told nothing."""
        return False

    @property
    def outcome(self) -> Any:
        """Its answer; None if it has none, or an error."""
        return None

    def claim(self) -> bool:
        """Whether it is the caller's to `tell`: of many threads, one may."""
        return not self.settled

    def tell(self, answer: Any) -> None:
        """The answer, or the error, by who has claimed it."""
        if isinstance(answer, Exception):
            self.fail(answer)
        else:
            self.settle(answer)

    def settle(self, answer: Any) -> None:
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        raise NotImplementedError


# Where a thread waits, and what it is told there.
Seat = SimpleQueue[str]
SETTLED = "settled"
DRIVE = "drive"


class TaskTicket(Ticket):
    """For a coroutine, which awaits ``future``."""

    __slots__ = ("future",)

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        counters: RedisCounters,
        name: str,
        verb: str = HIT,
        cost: int = 1,
        mark: int = NO_MARK,
        kept: int = 0,
        members: Sequence[Question] = (),
    ) -> None:
        Ticket.__init__(self, counters, name, verb, cost, mark, kept, members)
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

    def settle(self, answer: Any) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Pending(Awaitable[Any]):
    """Tickets on their way, of which only who awaits the answer may take anything."""

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


class ThreadTicket(Ticket):
    """For a thread, which sits and waits for a word: see turns.py."""

    __slots__ = ("_abandoned", "_answer", "_claims", "_error", "driver", "seat", "told")

    def __init__(self, seat: Seat, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seat = seat
        self.driver: Callable[[], None] | None = None  # what stops the thread that drives
        self._abandoned = False
        self._answer: Any = None
        self._error: Exception | None = None
        self._claims = [None]  # whoever pops it settles the ticket: atomic under any threads
        self.told = False  # and then its answer is written, which is another moment

    @property
    def settled(self) -> bool:
        return not self._claims

    @property
    def abandoned(self) -> bool:
        return self._abandoned

    def abandon(self) -> None:
        """The thread was interrupted. What would take takes nothing; all else still happens."""
        if self.verb in TAKES and self.claim():
            self._abandoned = True

    @property
    def outcome(self) -> Any:
        return self._answer

    def settle(self, answer: Any) -> None:
        if self.claim():
            self.tell(answer)

    def fail(self, error: Exception) -> None:
        self.settle(error)

    def claim(self) -> bool:
        try:
            self._claims.pop()
        except IndexError:
            return False
        return True

    def tell(self, answer: Any) -> None:
        if isinstance(answer, Exception):
            self._error = answer
        else:
            self._answer = answer
        self.told = True
        self.seat.put(SETTLED)
        if self.driver is not None:
            self.driver()

    def result(self) -> Any:
        """Its answer, once it is told."""
        if self._error is not None:
            raise self._error
        return self._answer


def joined(answers: list[Answer]) -> Any:
    """A group's answer: the decisions of its members, or the one thing that prevented them.

    When it was refused, the decisions of members that would have passed are looks.
    """
    for answer in answers:
        if isinstance(answer, Exception) or answer is LATE or answer is REFRESH:
            return answer
    return answers


class RestTicket(Ticket):
    """A group but for one member, on which the failure policy has decided."""

    __slots__ = ("_at", "_decision", "_whole")

    def __init__(self, whole: Ticket, at: int, decision: Decision) -> None:
        first, *others = [one for number, one in enumerate(whole.questions) if number != at]
        super().__init__(first.counters, first.name, first.verb, first.cost, members=others)
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

    def tell(self, answer: Any) -> None:
        if not isinstance(answer, Exception):
            answer = [answer] if isinstance(answer, Decision) else [*answer]
            if not all(answer):
                question = self._whole.questions[self._at]
                question.counters.give_back_here(question.name, question.cost, self._decision)
            answer.insert(self._at, self._decision)
        self._whole.tell(answer)

    def settle(self, answer: Any) -> None:
        if self.claim():
            self.tell(answer)

    def fail(self, error: Exception) -> None:
        self.settle(error)


class LooseTicket(Ticket):
    """For nobody: what the store does on its own account."""

    __slots__ = ("_settled",)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._settled = False

    @property
    def settled(self) -> bool:
        return self._settled

    def settle(self, answer: Any) -> None:
        self._settled = True

    def fail(self, error: Exception) -> None:
        self._settled = True
