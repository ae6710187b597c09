"""Checkpoint: whether a request may go ahead. Knows no framework.

`Checkpoint.flow` is written once for threads and coroutines: a generator that yields what has
to be awaited. With plain functions and a store in memory it never yields.

``R`` is the request: `Request` for HTTP, a `Call` for gRPC.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import Any, Generic, TypeVar

from penstock import switch
from penstock.errors import StoreError
from penstock.events import Hook, Hooks, Refused
from penstock.integrations.deciding.deciders import CLOSED, OPEN, ByGate, ByLimits, fails_closed
from penstock.integrations.deciding.key_functions import check_takes_one
from penstock.integrations.deciding.key_limits import ByKeys
from penstock.integrations.deciding.outcome import Outcome, Unclear, Undecided
from penstock.integrations.deciding.paths import AmbiguousPath
from penstock.integrations.deciding.waiting import Flow, finish, finish_async
from penstock.stores.base import check_cost

logger = logging.getLogger("penstock")

R = TypeVar("R")


class Checkpoint(Generic[R]):
    """A decider, and the options that limits and gates have in common.

    - ``cost``: units, or a function of the request; a request that costs 0 passes uncounted
    - ``exempt``: a function of the request; exempt requests are not counted, but deny lists
      still apply
    - ``shadow``: decide and report, but refuse no request
    - ``on_failure``: if the store is not available: ``"open"``, or ``"closed"``
    - ``hook``: called with a `Refused` of ``source`` for every request that is refused, or
      would be
    - ``enabled``: False: nothing is decided, and every request passes; None: as
      ``PENSTOCK_ENABLED`` says
    """

    def __init__(
        self,
        decider: ByLimits[R] | ByKeys[R] | ByGate[R],
        *,
        asynchronous: bool,
        cost: int | Callable[[R], int | Awaitable[int]],
        exempt: Callable[[R], bool | Awaitable[bool]] | None,
        shadow: bool,
        on_failure: str | None,
        hook: Hook | None,
        source: str,
        enabled: bool | None,
    ) -> None:
        self.asynchronous = asynchronous
        self.enabled = switch.is_enabled(enabled)
        self._decider = decider
        if callable(cost):
            check_takes_one(cost, "cost")
        self._cost = cost if callable(cost) else check_cost(cost)
        self._exempt = exempt
        self._shadow = shadow
        self._on_failure = on_failure
        self._hooks = Hooks()
        if hook is not None:
            self._hooks.add(hook)
        self._source = source

    def check(self, request: R) -> Outcome | None:
        """For threads. None: the request is not counted."""
        return finish(self.flow(request))

    def check_async(self, request: R) -> Coroutine[Any, Any, Outcome | None]:
        """For coroutines. None: the request is not counted."""
        return finish_async(self.flow(request))

    def flow(self, request: R, exempt: Any = False) -> Flow[Outcome | None]:
        """Yields what has to be awaited; returns the outcome."""
        if not self.enabled or switch.off:
            return None
        if self._exempt is not None and not exempt:
            exempt = self._exempt(request)
            if type(exempt) is not bool and isawaitable(exempt):
                exempt = yield exempt
        outcome: Outcome | None
        try:
            if exempt:  # not counted, but it may be on a deny list
                outcome = yield from self._decider.denial(request)
            elif callable(self._cost):
                cost: Any = self._cost(request)
                if type(cost) is not int and isawaitable(cost):
                    cost = yield cost
                if type(cost) is int and cost == 0:  # free
                    outcome = yield from self._decider.denial(request)
                else:
                    outcome = yield from self._decider.decide(request, check_cost(cost))
            else:
                outcome = yield from self._decider.decide(request, self._cost)
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

    def reset(self) -> None:
        """Forget all counts of its store, also those of other limits that use this store."""
        self._decider.store.clear()

    def close(self) -> None:
        """Stop watching the file of rules."""
        self._decider.close()


def check_on_failure(on_failure: str | None) -> str | None:
    if on_failure not in (None, OPEN, CLOSED):
        raise ValueError(f"on_failure is 'open' or 'closed', not {on_failure!r:.100}")
    return on_failure


def yes_or_no(value: Any, name: str) -> bool:
    """Not a text: that of an environment variable is true even if it is ``"false"``."""
    if type(value) is not bool:
        raise TypeError(f"{name} is True or False, not {value!r:.100}")
    return value
