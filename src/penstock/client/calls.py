"""One call, from its place in the queue to its last response: written once for threads and tasks.

A call is a flow (see `penstock.flows`) of the steps in `penstock.flow_steps` and of `Transfer`. ::

    wait: in a queue by key, first come, first served; the gate; the pace; the local limit
    send: the response says what is left of the limits, and whether the call was refused
    refused: may it be sent again, is it within the budget, is there time? then back to wait,
        before the calls that came later

A 429 to a call that was sent before the pacer had heard of the limit is no failed attempt: the
call returns to the queue, and takes nothing from its retries or the budget.

The result is the last response, or the last error. `NotSent` is raised only if there is neither,
because nothing was sent.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.client.fields import Headers, ServerHints, read
from penstock.client.pacer import Pacer
from penstock.client.retries import Budget
from penstock.client.settings import Settings
from penstock.clock import SECOND
from penstock.decision import Decision
from penstock.errors import PenstockError
from penstock.flow_steps import Pause, Step
from penstock.stores.base import check_key
from penstock.waiters import TaskWaiter, ThreadWaiter, WaiterQueues

# How many keys are remembered; beyond that, those without state are forgotten.
MOST_KEYS = 10_000
# The answers of calls in progress may change how long to wait: look again this often.
LOOK_EVERY = SECOND // 100

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
    """What is read of a response, under the names of httpx and requests."""

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
class Transfer:
    """Call a function of the transport, which is a coroutine function if calls are tasks."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()

    def run(self) -> Any:
        return self.function(*self.args)

    run_async = run


Wait = Generator[Step, Any, None]


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
        self._keys: dict[str, tuple[Pacer, Budget]] = {}
        self._lock = threading.Lock()
        self._arrivals = itertools.count()

    def call(
        self, request: OutgoingRequest, send: Callable[[], Any], detach: Callable[[Any], Any]
    ) -> Generator[Step, Any, tuple[Any, Tries]]:
        """One call, to be driven.

        ``send`` sends the request and returns its response. ``detach`` reads a response, so that
        its connection is released, and returns one that can still be read.
        """
        now, wall = self._settings.clock.now, self._settings.wall.now
        timeout = self._settings.timeout
        deadline = None if timeout is None else now() + timeout
        pacer, budget = self._state_of(request.key)
        rank = next(self._arrivals)
        last: Response | None = None
        lost: Exception | None = None
        tries = refusals = waited = rest = 0
        while True:
            since = now()
            try:
                yield from self._turn(request.key, rank, pacer, deadline, rest)
            except NotSent:
                if last is not None:
                    return last, Tries(tries, (waited + now() - since) / SECOND)
                if lost is not None:
                    _note(lost, tries)
                    raise lost from None
                raise
            sent = now()
            waited += sent - since
            if not tries:
                budget.call()
            tries += 1
            try:
                response: Response = yield Transfer(send)
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
                pacer.passed(now(), sent, hints)
                return response, Tries(tries, waited / SECOND)
            counts = pacer.refused(now(), sent, hints) or response.status_code != TOO_MANY
            after = hints.retry_after or 0.0
            if counts:
                refusals += 1
                again = self._again(request, budget, refusals, after, deadline)
            else:
                again = 0 if self._may_repeat(request, after, deadline) else None
            if again is None:
                return response, Tries(tries, waited / SECOND)
            rest = again
            try:
                last, lost = (yield Transfer(detach, (response,))), None
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
        if refusals > retries.most or not self._may_repeat(request, after, deadline):
            return None
        if not budget.take():
            return None
        backoff = retries.backoff(refusals, self._settings.chance())
        wait = round(after * SECOND) + round(backoff * SECOND)
        left = self._left(deadline)
        return wait if left is None else min(wait, left)

    def _may_repeat(self, request: OutgoingRequest, after: float, deadline: int | None) -> bool:
        """Whether it is safe to send it again, and whether there is time for that."""
        retries = self._settings.retries
        if not retries.most or not request.replayable:
            return False
        left = self._left(deadline)
        if left is not None and round(after * SECOND) > left:
            return False
        return retries.may_repeat(request.method, request.keyed)

    def _turn(self, key: str, rank: int, pacer: Pacer, deadline: int | None, rest: int) -> Wait:
        """Wait until the call may be sent; it then counts as in progress."""
        clock = self._settings.clock
        if rest:
            yield Pause(clock, rest)
        waiter = self._queues.join(key, rank)
        alone = waiter.first
        try:
            # A waiter that is woken is the head: there is no other reason to wake it.
            if not alone and not (yield Pause(clock, self._left(deadline), waiter)):
                raise self._not_sent(key, "the calls before it took too long")
            yield from self._head(key, pacer, deadline, alone)
            pacer.leaves(clock.now())
        finally:
            self._queues.leave(waiter)

    def _head(self, key: str, pacer: Pacer, deadline: int | None, alone: bool) -> Wait:
        """The wait of the first in the queue; ``alone`` if no others were there before it."""
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
            # The pace is an estimate: it fails no call, except one that waited behind others. If
            # such calls were sent when their time ends, there would be no pace under load.
            in_time = deadline is None or due <= deadline
            if now < due and (in_time or not alone):
                left = self._left(deadline)
                if left == 0:
                    after = (due - now) / SECOND
                    raise self._not_sent(key, "the calls before it took too long", after)
                wait = due - now if left is None else min(due - now, left)
                yield Pause(clock, min(wait, LOOK_EVERY) if pacer.under_way else wait)
                continue
            if limiter is None:
                return
            left = self._left(deadline)
            queues = limiter.task_waiters if self._tasks else limiter.thread_waiters
            seconds = None if left is None else left / SECOND
            decision: Decision = yield from limiter.begin(queues, key, None, 1, seconds)
            if decision:
                limiter = None  # already taken; but the gate may be shut by now
                continue
            # A full leaky bucket refuses at once, and has room later.
            left = self._left(deadline)
            if decision._retry < 0 or (left is not None and decision._retry > left):
                reason = f"its local limit is {decision.limit}"
                raise self._not_sent(key, reason, decision.retry_after)
            yield Pause(clock, decision._retry)

    def _state_of(self, key: str) -> tuple[Pacer, Budget]:
        settings = self._settings
        with self._lock:
            state = self._keys.get(check_key(key))
            if state is None:
                now = settings.clock.now()
                if len(self._keys) >= MOST_KEYS:
                    self._forget_idle(now)
                pacer = Pacer(now, settings.learn, settings.chance, settings.retries)
                state = self._keys[key] = pacer, Budget(settings.retries)
        return state

    def _forget_idle(self, now: int) -> None:
        """Forget up to a tenth of all keys: those whose next call could be sent at once."""
        idle = (key for key, (pacer, _) in self._keys.items() if pacer.idle(now))
        for key in list(itertools.islice(idle, MOST_KEYS // 10)):
            del self._keys[key]

    def _left(self, deadline: int | None) -> int | None:
        return None if deadline is None else max(0, deadline - self._settings.clock.now())


def _is_refusal(response: Response, hints: ServerHints) -> bool:
    if response.status_code == TOO_MANY:
        return True
    return response.status_code == UNAVAILABLE and hints.retry_after is not None


def _note(error: BaseException, tries: int) -> None:
    if tries > 1:
        error.add_note(f"(Penstock tried {tries} times)")
