"""Interceptor: one call, from who asks to what is counted in the end. Shared by both stacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, Unpack

import grpc

from penstock.async_gate import AnyGate
from penstock.async_limiter import AsyncLimiter
from penstock.events import Hook
from penstock.integrations.deciding.checkpoint import Checkpoint, check_on_failure
from penstock.integrations.deciding.deciders import ByGate, ByLimits, Limits
from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.deciding.identity import X_FORWARDED_FOR, Trust
from penstock.integrations.deciding.options import check_options
from penstock.integrations.deciding.outcome import Outcome, Undecided
from penstock.integrations.deciding.waiting import Flow, value
from penstock.integrations.grpc import answer
from penstock.integrations.grpc.answer import Refusal
from penstock.integrations.grpc.call import (
    DIMENSIONS,
    Call,
    KeyFunction,
    Status,
    as_pairs,
    by_peer,
    family,
)
from penstock.integrations.grpc.context import (
    Watched,
    already_set,
    ended,
    is_gone,
    left_by_itself,
    limits_of,
)
from penstock.integrations.grpc.exempt import EXEMPT, ExemptFunction, as_exempt
from penstock.integrations.grpc.options import (
    CallOptions,
    CostFunction,
    CountWhen,
    LimitFunction,
)
from penstock.limit import Limit
from penstock.limiter import Limiter
from penstock.stores.base import Store

logger = logging.getLogger("penstock")


class Interceptor:
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
        **options: Unpack[CallOptions],
    ) -> None:
        check_options("RateLimitInterceptor", options, CallOptions, "limiter")
        self._prepare(limiter, **options)

    def _prepare(
        self,
        limiter: Limiter | AsyncLimiter | Limit | str | None,
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
        check_on_failure(on_failure)
        if count_when is not None and not callable(count_when):
            raise TypeError(f"count_when is a function of a Status, not {count_when!r:.100}")
        if (limiter is None) == (gate is None):
            raise TypeError("give either a limiter, such as Limiter('100/minute'), or gate=")
        self._check_plain(
            key=key, limit=limit, cost=cost, exempt=exempt, count_when=count_when,
            **{f"dimension {name!r}": how for name, how in (dimensions or {}).items()},
        )  # fmt: skip
        self._trust = Trust(trusted, hops, forwarded)
        self._count_when = count_when
        decider: ByLimits[Call] | ByGate[Call]
        if gate is not None:
            if key is not by_peer or limit is not None:
                raise TypeError(
                    "with a gate, rules say what is counted by: give dimensions, not key or limit"
                )
            decider = ByGate(
                gate, {**DIMENSIONS, **(dimensions or {})}, family,
                domain=domain, store=store, on_failure=on_failure, watch=watch,
                asynchronous=self.asynchronous,
            )  # fmt: skip
        else:
            if domain is not None or dimensions is not None or watch:
                raise TypeError("domain, dimensions and watch are for a gate; a limiter has a key")
            if not callable(key):
                raise TypeError(f"key is a function from a call to a key, not {key!r:.100}")
            assert limiter is not None
            decider = ByLimits(
                as_limiter(limiter, store, self.asynchronous), limit, key,
                name=name, on_failure=on_failure, asynchronous=self.asynchronous,
                settles=count_when is not None,
            )  # fmt: skip
        self._checkpoint = Checkpoint(
            decider, asynchronous=self.asynchronous, cost=cost, exempt=as_exempt(exempt),
            shadow=shadow, on_failure=on_failure, hook=hook, source="grpc",
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
        outcome = yield from self._checkpoint.flow(call)
        if outcome is None:
            return Visit(self, call, context)
        if not outcome.allowed:
            yield from self._withdraw(context)
            return Visit(self, call, context, refusal=answer.to_outcome(outcome))
        return Visit(self, call, context, None if isinstance(outcome, Undecided) else outcome)

    def _withdraw(self, context: Any) -> Flow[None]:
        """Interceptors before this one have let the call pass: they give back what they took."""
        for watched in limits_of(context):
            back = watched.outcome.withdraw(self.asynchronous)
            if back is not None:
                yield back
            watched.tell(answer.fields(watched.outcome.told))

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
        self._checkpoint.close()

    @property
    def settles(self) -> bool:
        return self._count_when is not None


def as_limiter(
    limiter: Limiter | AsyncLimiter | Limit | str, store: Store | None, asynchronous: bool
) -> Limiter:
    """The limiter itself, whose counters are asked directly."""
    if isinstance(limiter, (str, Limit)):
        return Limiter(limiter, store)
    if store is not None:
        raise TypeError("a limiter has its store already")
    if isinstance(limiter, Limiter):
        return limiter
    if isinstance(limiter, AsyncLimiter) and asynchronous:
        return limiter._limiter
    wanted = "a Limiter or an AsyncLimiter" if asynchronous else "a Limiter"
    raise TypeError(f"limiter is {wanted}, or a limit such as '100/minute', not {limiter!r:.100}")


class Visit:
    """One call, from the decision to its end.

    ``context`` is what the handler is given; ``refusal`` says that there will be none.
    """

    __slots__ = (
        "_begun", "_call", "_context", "_ending", "_interceptor", "_outcome", "_watched", "context",
        "refusal",
    )  # fmt: skip

    def __init__(
        self,
        interceptor: Interceptor,
        call: Call,
        context: Any,
        outcome: Outcome | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        self._interceptor = interceptor
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
        if self._watched is None or self._outcome is None or not self._interceptor.settles:
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
                    return self._interceptor.keep(self._outcome)
                code, raised = grpc.StatusCode.CANCELLED, None
            elif Status(code, self._call).failed:
                return self._interceptor.keep(self._outcome)
        return self._interceptor.settle(self._outcome, Status(code, self._call, raised))
