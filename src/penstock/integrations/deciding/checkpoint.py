"""Checkpoint: one request, from who asks to whether it may go ahead. Knows no framework.

`Checkpoint.flow` is written once for threads and coroutines: a generator that yields only
what has to be awaited. With plain functions and a store in memory it never yields.

``R`` is the request: `Request` for HTTP, a `Call` for gRPC.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import Any, Generic, TypeVar

from penstock.errors import StoreError
from penstock.events import Hook, Hooks, Refused
from penstock.integrations.deciding.deciders import CLOSED, OPEN, ByGate, ByLimits
from penstock.integrations.deciding.outcome import Outcome, Unclear, Undecided, fails_closed
from penstock.integrations.deciding.paths import AmbiguousPath
from penstock.integrations.deciding.waiting import Flow, finish, finish_async
from penstock.stores.base import check_cost

logger = logging.getLogger("penstock")

R = TypeVar("R")


class Checkpoint(Generic[R]):
    """A decider, and what is true of every request whoever decides.

    - ``cost``: units, or a function of the request
    - ``exempt``: a function of the request; what is exempt is not counted, and deny lists
      apply to it all the same
    - ``shadow``: decide and tell, and refuse nobody
    - ``on_failure``: when the store cannot be asked: ``"open"``, or ``"closed"``
    - ``hook``: called with a `Refused` of ``source`` for everyone who is refused, or would be
    """

    def __init__(
        self,
        decider: ByLimits[R] | ByGate[R],
        *,
        asynchronous: bool,
        cost: int | Callable[[R], int | Awaitable[int]],
        exempt: Callable[[R], bool | Awaitable[bool]] | None,
        shadow: bool,
        on_failure: str | None,
        hook: Hook | None,
        source: str,
    ) -> None:
        self.asynchronous = asynchronous
        self._decider = decider
        self._cost = cost if callable(cost) else check_cost(cost)
        self._exempt = exempt
        self._shadow = shadow
        self._on_failure = on_failure
        self._hooks = Hooks()
        if hook is not None:
            self._hooks.add(hook)
        self._source = source

    def check(self, request: R) -> Outcome | None:
        """For threads. None: nobody counts this request."""
        return finish(self.flow(request))

    def check_async(self, request: R) -> Coroutine[Any, Any, Outcome | None]:
        """For coroutines. None: nobody counts this request."""
        return finish_async(self.flow(request))

    def flow(self, request: R) -> Flow[Outcome | None]:
        """Yields what has to be awaited; returns the outcome."""
        return self._flow(request)

    def _flow(self, request: R, exempt: Any = False) -> Flow[Outcome | None]:
        if self._exempt is not None and not exempt:
            exempt = self._exempt(request)
            if type(exempt) is not bool and isawaitable(exempt):
                exempt = yield exempt
        outcome: Outcome | None
        try:
            if exempt:  # not counted, but it may be on a deny list
                outcome = yield from self._decider.denial(request)
            else:
                cost: Any = self._cost
                if callable(cost):
                    cost = cost(request)
                    if type(cost) is not int and isawaitable(cost):
                        cost = yield cost
                    cost = check_cost(cost)
                outcome = yield from self._decider.decide(request, cost)
        except StoreError as error:
            outcome = self._failed(error)
        except AmbiguousPath as error:
            outcome = Unclear(str(error))
        if outcome is not None and not outcome.allowed:
            self._refused(outcome)
        return outcome

    def _failed(self, error: StoreError) -> Outcome:
        logger.warning("a request was not counted, as the store failed: %s", error)
        return Undecided(not fails_closed(error, self._on_failure, self._decider.store))

    def _refused(self, outcome: Outcome) -> None:
        outcome.shadow = self._shadow
        if self._hooks:
            self._hooks.emit(Refused(self._source, outcome.key, outcome.shadow))
        outcome.allowed = self._shadow

    def close(self) -> None:
        """Stop watching the file of rules, if it does."""
        self._decider.close()


def check_on_failure(on_failure: str | None) -> str | None:
    if on_failure not in (None, OPEN, CLOSED):
        raise ValueError(f"on_failure is 'open' or 'closed', not {on_failure!r:.100}")
    return on_failure


def yes_or_no(value: Any, name: str) -> bool:
    """The text of an environment variable is true, also if it says ``"false"``."""
    if type(value) is not bool:
        raise TypeError(f"{name} is True or False, not {value!r:.100}")
    return value
