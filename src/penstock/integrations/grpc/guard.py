"""Guard: one call, from who asks to what is counted in the end. Shared by both stacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import grpc

from penstock.async_gate import AnyGate
from penstock.async_limiter import AsyncLimiter
from penstock.errors import StoreError
from penstock.events import Hook, Hooks, Refused
from penstock.integrations.descriptors import Dimension
from penstock.integrations.grpc import answer
from penstock.integrations.grpc.answer import Refusal
from penstock.integrations.grpc.call import Call, KeyFunction, Status, as_pairs, by_peer
from penstock.integrations.grpc.context import (
    Watched,
    already_set,
    ended,
    is_gone,
    left_by_itself,
    limits_of,
)
from penstock.integrations.grpc.deciders import ByGate, ByLimiter, LimitFunction, Limits
from penstock.integrations.grpc.exempt import EXEMPT, ExemptFunction, ExemptNames
from penstock.integrations.grpc.flow import Flow, value
from penstock.integrations.identity import X_FORWARDED_FOR, Trust
from penstock.integrations.outcome import FromGate, Outcome, Undecided, fails_closed
from penstock.limit import Limit
from penstock.limiter import Limiter
from penstock.stores.base import Store, check_cost

logger = logging.getLogger("penstock")

CostFunction = Callable[[Call], int | Awaitable[int]]
CountWhen = Callable[[Status], bool | Awaitable[bool]]

OPEN, CLOSED = "open", "closed"


class Guard:
    """What an interceptor was told, made ready.

    - ``limiter``: a limiter, or a limit as text; with ``key``, a function of the `Call`, and
      ``limit``: other limits than the limiter's own, or a function of the call, where
      None means not limited; ``name`` is what clients are told it is called
    - or ``gate``: a gate, or the path of a file of rules; with ``domain``, ``dimensions``, and
      ``watch``: reload the file when it changes, until `close`
    - ``store``: where to count, if neither a limiter nor a gate says so
    - ``cost``: units, or a function of the call
    - ``exempt``: names of methods and services that are never counted, or a function; deny
      lists apply to them all the same
    - ``count_when``: a function of the `Status`; where it says no, what was taken is given
      back when the call ends
    - ``shadow``: decide and tell, and refuse nobody
    - ``on_failure``: when the store cannot be asked: ``"open"``, or ``"closed"``
    - ``trusted``, ``hops``, ``forwarded``: which proxies are believed, see `Trust`
    - ``hook``: called with a `penstock.events.Refused` for everyone who is refused, or
      would be
    """

    asynchronous = False

    def __init__(
        self,
        limiter: Limiter | AsyncLimiter | Limit | str | None = None,
        *,
        gate: AnyGate | str | Path | None = None,
        key: KeyFunction = by_peer,
        limit: Limits | LimitFunction = None,
        cost: int | CostFunction = 1,
        exempt: Iterable[str] | ExemptFunction = EXEMPT,
        count_when: CountWhen | None = None,
        shadow: bool = False,
        on_failure: str | None = None,
        store: Store | None = None,
        name: str = "default",
        domain: str | None = None,
        dimensions: Mapping[str, Dimension[Call] | str] | None = None,
        watch: bool = False,
        trusted: Iterable[str] = (),
        hops: int = 0,
        forwarded: str = X_FORWARDED_FOR,
        hook: Hook | None = None,
    ) -> None:
        if on_failure not in (None, OPEN, CLOSED):
            raise ValueError(f"on_failure is 'open' or 'closed', not {on_failure!r:.100}")
        if count_when is not None and not callable(count_when):
            raise TypeError(f"count_when is a function of a Status, not {count_when!r:.100}")
        if (limiter is None) == (gate is None):
            raise TypeError("give either a limiter, such as Limiter('100/minute'), or gate=")
        self._check_plain(
            key=key, limit=limit, cost=cost, exempt=exempt, count_when=count_when,
            **{f"dimension {name!r}": how for name, how in (dimensions or {}).items()},
        )  # fmt: skip
        self._trust = Trust(trusted, hops, forwarded)
        self._cost = cost if callable(cost) else check_cost(cost)
        self._exempt_if: ExemptFunction | None = exempt if callable(exempt) else None
        self.exempt_names = ExemptNames(() if callable(exempt) else exempt)
        self._count_when = count_when
        self._shadow = shadow
        self._on_failure = on_failure
        self._hooks = Hooks()
        if hook is not None:
            self._hooks.add(hook)
        self._decider: ByLimiter | ByGate
        if gate is not None:
            if key is not by_peer or limit is not None:
                raise TypeError(
                    "with a gate, rules say what is counted by: give dimensions, not key or limit"
                )
            self._decider = ByGate(
                gate, domain, dimensions or {},
                store=store, watch=watch, asynchronous=self.asynchronous,
            )  # fmt: skip
        else:
            if domain is not None or dimensions is not None or watch:
                raise TypeError("domain, dimensions and watch are for a gate; a limiter has a key")
            assert limiter is not None
            self._decider = ByLimiter(
                limiter, key, limit,
                store=store, name=name, on_failure=on_failure, asynchronous=self.asynchronous,
                settles=count_when is not None,
            )  # fmt: skip

    def _check_plain(self, **functions: object) -> None:
        if self.asynchronous:
            return
        for name, function in functions.items():
            if iscoroutinefunction(function):
                raise TypeError(
                    f"{name} is a coroutine function, which only grpc.aio can await: give a "
                    "plain function, or use penstock.integrations.grpc.aio"
                )

    def call(self, details: grpc.HandlerCallDetails, context: Any) -> Call:
        """The call as functions see it: the peer is known to its context alone."""
        pairs = as_pairs(details.invocation_metadata)
        return Call(details.method, context.peer(), pairs, self._trust)

    def admit(self, call: Call, context: Any) -> Flow[Visit]:
        """Decide, before the handler runs and before it reads anything."""
        exempt = call.method in self.exempt_names
        if self._exempt_if is not None:
            exempt = yield from value(self._exempt_if(call))
        try:
            if exempt:
                outcome = yield from self._denial(call)
            else:
                cost = self._cost
                if callable(cost):
                    cost = check_cost((yield from value(cost(call))))
                outcome = yield from self._decider.decide(call, cost)
        except StoreError as error:
            logger.warning("a call was not counted, as the store failed: %s", error)
            closed = fails_closed(error, self._on_failure, self._decider.store)
            refusal = answer.UNAVAILABLE if closed else None
            visit = self._visit(call, context, None, "", refusal)
        else:
            if outcome is None:
                return Visit(self, call, context)
            if self._on_failure is not None and isinstance(outcome, FromGate):
                outcome = outcome.under(self._on_failure == CLOSED)
            refusal = None if outcome.allowed else self._refusal(outcome)
            visit = self._visit(call, context, outcome, outcome.key, refusal)
        if visit.refusal is not None:
            yield from self._withdraw(context)
        return visit

    def _withdraw(self, context: Any) -> Flow[None]:
        """Interceptors before this one have let the call pass: they give back what they took."""
        for watched in limits_of(context):
            back = watched.outcome.withdraw(self.asynchronous)
            if back is not None:
                yield back
            watched.tell(answer.fields(watched.outcome.told))

    def _denial(self, call: Call) -> Flow[Outcome | None]:
        """Deny lists apply to exempt calls, too."""
        if not isinstance(self._decider, ByGate) or not self._decider.denies:
            return None
        return (yield from self._decider.denial(call))

    def _visit(
        self,
        call: Call,
        context: Any,
        outcome: Outcome | None,
        key: str,
        refusal: Refusal | None,
    ) -> Visit:
        if refusal is not None:
            self._hooks.emit(Refused("grpc", key, self._shadow))
            if not self._shadow:
                return Visit(self, call, context, refusal=refusal)
        return Visit(self, call, context, outcome)

    def _refusal(self, outcome: Outcome) -> Refusal:
        if isinstance(outcome, Undecided):
            return answer.UNAVAILABLE
        return answer.DENIED if outcome.denied else answer.refusal(outcome.told)

    def settle(self, outcome: Outcome, status: Status) -> Flow[None]:
        """Give back what need not be counted. The call has ended: nothing may fail any more."""
        try:
            assert self._count_when is not None
            counts = yield from value(self._count_when(status))
            back = (outcome.confirm if counts else outcome.give_back)(self.asynchronous)
            if back is not None:
                yield back
        except Exception:
            logger.exception("a call to %s stays counted", status.call.method)

    def keep(self, outcome: Outcome) -> Flow[None]:
        """It stays counted, whatever ``count_when`` would say."""
        back = outcome.confirm(self.asynchronous)
        if back is not None:
            yield back

    def close(self) -> None:
        """Stop watching the file of rules, if it does."""
        if isinstance(self._decider, ByGate):
            self._decider.close()

    @property
    def settles(self) -> bool:
        return self._count_when is not None


class Visit:
    """One call, from the decision to its end.

    ``context`` is what the handler is given; ``refusal`` says that there will be none.
    """

    __slots__ = (
        "_begun", "_call", "_context", "_ending", "_guard", "_outcome", "_watched", "context",
        "refusal",
    )  # fmt: skip

    def __init__(
        self,
        guard: Guard,
        call: Call,
        context: Any,
        outcome: Outcome | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        self._guard = guard
        self._call = call
        self._outcome = outcome
        self._ending = threading.Lock()
        self._begun = False
        self.refusal = refusal
        self.context = self._context = context
        self._watched: Watched | None = None
        if outcome is not None:
            self._watched = self.context = Watched(context, answer.fields(outcome.told), outcome)

    def trailing(self) -> Sequence[Any]:
        """What a refusal sends, with what an interceptor before us has set."""
        assert self.refusal is not None
        return (*already_set(self.context), *self.refusal.metadata)

    def refusal_for(self, error: BaseException) -> Refusal | None:
        """How the call ends if its handler has raised an error of ours; None for all others.

        A stream that has begun is left alone: grpc.aio may be sending its last response.
        """
        if self._begun or (self._watched is not None and self._watched.answered):
            return None
        refusal = answer.to_error(error)
        if refusal is not None:
            own = already_set(self.context)
            self.context.set_trailing_metadata((*own, *refusal.metadata))
        return refusal

    def answers(self) -> None:
        """A response is about to be sent."""
        self._begun = True
        if self._watched is not None:
            self._watched.answered = True

    def end(self, error: BaseException | None) -> Flow[None] | None:
        """What is left to do when the handler has ended, however often that is said."""
        if self._watched is None or self._outcome is None or not self._guard.settles:
            return None
        if self._outcome.returned:  # a limit after this one has refused the call
            return None
        if not self._ending.acquire(blocking=False):
            return None
        watched = self._watched
        code, raised = ended(watched, error)
        if is_gone(self._context, error):
            if not left_by_itself(watched, error):
                if not watched.answered:  # nobody knows what the handler had done
                    return self._guard.keep(self._outcome)
                code, raised = grpc.StatusCode.CANCELLED, None
            elif Status(code, self._call).failed:
                return self._guard.keep(self._outcome)
        return self._guard.settle(self._outcome, Status(code, self._call, raised))
