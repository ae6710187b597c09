"""One call, from its place in the queue to its last answer: written once for threads and tasks.

A call is a flow (see `penstock.flows`). It yields the steps of a wait (`penstock.steps`), `Send`
and `Keep`, which drivers.py runs. ::

    wait: in a queue by key, first come, first served; the gate; the pace; the local limit
    send: the answer says what is left of the limits, and whether the call was refused
    refused: may it be sent again, is it within the budget, is there time? then back to wait

The result is the last answer, or the last error. `NotSent` is raised only if there is neither,
because nothing was sent.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.client.fields import Headers, ServerHints, read
from penstock.client.pacer import Pacer
from penstock.client.retries import Budget
from penstock.client.settings import Settings
from penstock.clock import SECOND
from penstock.decision import Decision
from penstock.errors import PenstockError
from penstock.steps import CallCounters, Pause
from penstock.stores.base import check_key
from penstock.waiters import TaskWaiter, ThreadWaiter, WaiterQueues

# How many keys are remembered; beyond that, those without state are forgotten.
MOST_KEYS = 10_000
# The answers of calls in progress may change how long to wait: look again this often.
LOOK_EVERY = SECOND // 20

TOO_MANY, UNAVAILABLE = 429, 503


class NotSent(PenstockError):
    """A call was not sent, because its turn would not have come within ``timeout``.

    ``key`` says which calls wait together, ``retry_after`` after how many seconds its turn would
    have come, if that is known.
    """

    def __init__(self, key: str, reason: str, retry_after: float | None = None) -> None:
        self.key = key
        self.reason = reason
        self.retry_after = retry_after
        when = "" if retry_after is None else f"; retry after {retry_after:.3f} s"
        super().__init__(f"not sent to {key}: {reason}{when}")

    def __reduce__(self) -> tuple[type[NotSent], tuple[str, str, float | None]]:
        return type(self), (self.key, self.reason, self.retry_after)


@dataclass(frozen=True, slots=True)
class Tries:
    """How a call went: ``count`` tries, and ``waited`` seconds in total before them."""

    count: int
    waited: float


class Response(Protocol):
    """The common part of the responses of httpx and requests."""

    status_code: int

    @property
    def headers(self) -> Headers: ...


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """What a call must know of its request, such as whether its body can be sent again."""

    key: str
    method: str
    replayable: bool
    keyed: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """Send the request; the answer is its response."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Release a response's connection; the answer is a response that can still be read."""

    response: Any


Call = Generator[CallCounters | Pause | Send | Keep, Any, tuple[Any, Tries]]


class Caller:
    """The state that the calls of one transport share."""

    def __init__(
        self,
        settings: Settings,
        tasks: bool,
        errors: tuple[type[Exception], ...],
        not_sent: type[NotSent],
    ) -> None:
        self._queues = WaiterQueues(TaskWaiter if tasks else ThreadWaiter)
        self._tasks = tasks
        self._settings = settings
        self._errors = errors if settings.retries.errors else ()
        self._not_sent = not_sent
        self._places: dict[str, tuple[Pacer, Budget]] = {}
        self._making = threading.Lock()

    def call(self, request: OutgoingRequest) -> Call:
        """One call, to be driven."""
        now, wall = self._settings.clock.now, self._settings.wall.now
        deadline = self._deadline()
        pacer, budget = self._place(request.key)
        budget.call()
        last: Response | None = None
        lost: Exception | None = None
        tries = refusals = waited = rest = 0
        while True:
            since = now()
            try:
                yield from self._turn(request.key, pacer, deadline, rest)
            except NotSent:
                if last is not None:
                    return last, Tries(tries, (waited + now() - since) / SECOND)
                if lost is not None:
                    _note(lost, tries)
                    raise lost from None
                raise
            sent = now()
            waited += sent - since
            tries += 1
            try:
                response: Response = yield Send()
            except Exception as error:
                pacer.lost()
                refusals += 1
                again = None
                if isinstance(error, self._errors) and not isinstance(error, NotSent):
                    again = self._again(request, budget, refusals, 0.0, deadline)
                if again is None:
                    _note(error, tries)
                    raise
                last, lost, rest = None, error, again
                continue
            except BaseException:
                pacer.lost()
                raise
            hints = read(response.headers, wall() / SECOND)
            if not _is_refusal(response, hints):
                pacer.passed(now(), hints)
                return response, Tries(tries, waited / SECOND)
            pacer.refused(now(), sent, hints)
            refusals += 1
            again = self._again(request, budget, refusals, hints.retry_after or 0.0, deadline)
            if again is None:
                return response, Tries(tries, waited / SECOND)
            rest = again
            try:
                last, lost = (yield Keep(response)), None
            except Exception as error:
                last, lost = None, error

    def _again(
        self,
        request: OutgoingRequest,
        budget: Budget,
        refusals: int,
        after: float,
        deadline: int | None,
    ) -> int | None:
        """After how many nanoseconds to send it again; None if not at all."""
        retries = self._settings.retries
        if refusals > retries.most or not request.replayable:
            return None
        if not retries.may_repeat(request.method, request.keyed):
            return None
        left = self._left(deadline)
        least = round(after * SECOND)
        if left is not None and least > left:
            return None
        if not budget.take():
            return None
        wait = least + round(retries.backoff(refusals, self._settings.chance()) * SECOND)
        return wait if left is None else min(wait, left)

    def _turn(
        self, key: str, pacer: Pacer, deadline: int | None, rest: int
    ) -> Generator[CallCounters | Pause, Any, None]:
        """Wait until the call may be sent; it then counts as in progress."""
        clock = self._settings.clock
        if rest:
            yield Pause(clock, rest)
        waiter = self._queues.join(key)
        try:
            # A waiter that is woken is the head: there is no other reason to wake it.
            if not waiter.first and not (yield Pause(clock, self._left(deadline), waiter)):
                raise self._not_sent(key, "the calls before it took too long")
            yield from self._head(key, pacer, deadline)
            pacer.leaves(clock.now())
        finally:
            self._queues.leave(waiter)

    def _head(
        self, key: str, pacer: Pacer, deadline: int | None
    ) -> Generator[CallCounters | Pause, Any, None]:
        clock, limiter = self._settings.clock, self._settings.limiter
        while True:
            now = clock.now()
            if pacer.gate > now:
                if deadline is not None and pacer.gate > deadline:
                    after = (pacer.gate - now) / SECOND
                    raise self._not_sent(key, "it was refused and asked to wait", after)
                yield Pause(clock, pacer.gate - now)
                continue
            due = pacer.due(now)
            if now < due and (deadline is None or due <= deadline):
                wait = min(due - now, LOOK_EVERY) if pacer.under_way else due - now
                yield Pause(clock, wait)
                continue
            if limiter is None:
                return
            left = self._left(deadline)
            queues = limiter.task_waiters if self._tasks else limiter.thread_waiters
            seconds = None if left is None else left / SECOND
            decision: Decision = yield from limiter.begin(queues, key, None, 1, seconds)
            if decision:
                limiter = None  # once is enough; the gate may have been shut meanwhile
                continue
            # A full leaky bucket refuses at once, and has room later.
            left = self._left(deadline)
            if decision._retry < 0 or (left is not None and decision._retry > left):
                reason = f"its local limit is {decision.limit}"
                raise self._not_sent(key, reason, decision.retry_after)
            yield Pause(clock, decision._retry)

    def _place(self, key: str) -> tuple[Pacer, Budget]:
        with self._making:
            found = self._places.get(check_key(key))
            if found is None:
                if len(self._places) >= MOST_KEYS:
                    self._forget()
                settings, now = self._settings, self._settings.clock.now()
                pacer = Pacer(now, settings.learn, settings.chance)
                found = self._places[key] = pacer, Budget(settings.retries)
        return found

    def _forget(self) -> None:
        """The oldest call that could be sent at once; None if all must wait."""
        now = self._settings.clock.now()
        idle = (key for key, (pacer, _) in self._places.items() if pacer.idle(now))
        for key in list(itertools.islice(idle, MOST_KEYS // 10)):
            del self._places[key]

    def _deadline(self) -> int | None:
        timeout = self._settings.timeout
        return None if timeout is None else self._settings.clock.now() + timeout

    def _left(self, deadline: int | None) -> int | None:
        return None if deadline is None else max(0, deadline - self._settings.clock.now())


def _is_refusal(response: Response, hints: ServerHints) -> bool:
    if response.status_code == TOO_MANY:
        return True
    return response.status_code == UNAVAILABLE and hints.retry_after is not None


def _note(error: BaseException, tries: int) -> None:
    if tries > 1:
        error.add_note(f"(Penstock tried {tries} times)")
