"""Interceptor: checks a call, and settles it at its end. For `grpc.server` and `grpc.aio`."""

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
from penstock.integrations.deciding.identity import X_FORWARDED_FOR
from penstock.integrations.deciding.options import check_options
from penstock.integrations.deciding.outcome import Outcome, Undecided
from penstock.integrations.deciding.proxy_notice import trust_of
from penstock.integrations.deciding.waiting import Flow, value
from penstock.integrations.grpc import trailers
from penstock.integrations.grpc.call import (
    DIMENSIONS,
    Call,
    KeyFunction,
    Status,
    as_key,
    by_peer,
    family,
)
from penstock.integrations.grpc.context import (
    Watched,
    already_set,
    final_code,
    is_gone,
    left_by_itself,
    limits_of,
)
from penstock.integrations.grpc.options import (
    EXEMPT,
    CallOptions,
    CostFunction,
    CountWhen,
    ExemptFunction,
    LimitFunction,
    as_exempt,
)
from penstock.integrations.grpc.trailers import Refusal
from penstock.limiter import Limiter
from penstock.limits import Limit
from penstock.stores.base import Store

logger = logging.getLogger("penstock")


class Interceptor:
    """The options of an interceptor, and what it does for each call.

    - ``limiter``: a limiter, or a limit as text; with ``key``, a function of the `Call`, and
      ``limit``: other limits than the limiter's own, or a function of the call, where
      None means not limited; ``name`` is the limit's name in metadata
    - or ``gate``: a gate, or the path of a file of rules; with ``domain``, ``dimensions``, and
      ``watch``: reload the file when it changes, until `close`
    - ``store``: where to count, if neither a limiter nor a gate has one
    - ``cost``: units, or a function of the call
    - ``exempt``: names of methods and services that are never counted, or a function; deny
      lists still apply to them
    - ``count_when``: a function of the `Status`; if it returns False, what was taken is given
      back when the call ends
    - ``shadow``: decide and report, but refuse no call
    - ``on_failure``: if the store is not available: ``"open"``, or ``"closed"``
    - ``trusted``, ``hops``, ``forwarded``: which proxies are trusted, see `Trust`
    - ``hook``: called with a `penstock.events.Refused` for every call that is refused, or
      would be
    - ``enabled``: False: nothing is decided and no metadata is added; None: as
      ``PENSTOCK_ENABLED`` says
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
        store: Store | str | None = None,
        name: str = "default",
        domain: str | None = None,
        dimensions: Mapping[str, Dimension[Call] | str] | None = None,
        watch: bool = False,
        trusted: Iterable[str] = (),
        hops: int = 0,
        forwarded: str = X_FORWARDED_FOR,
        hook: Hook | None = None,
        enabled: bool | None = None,
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
        self._trust = trust_of(trusted, hops, forwarded)
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
            assert limiter is not None
            decider = ByLimits(
                as_limiter(limiter, store, self.asynchronous), limit, as_key(key),
                name=name, on_failure=on_failure, asynchronous=self.asynchronous,
                settles=count_when is not None,
            )  # fmt: skip
        self._checkpoint = Checkpoint(
            decider, asynchronous=self.asynchronous, cost=cost, exempt=as_exempt(exempt),
            shadow=shadow, on_failure=on_failure, hook=hook, source="grpc",
            enabled=enabled,
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
        """The call as functions get it. Only the context knows the peer."""
        pairs = tuple([(name, value) for name, value in details.invocation_metadata or ()])
        return Call(details.method, context.peer(), pairs, self._trust)

    def admit(self, call: Call, context: Any) -> Flow[ActiveCall]:
        """Check the limits, before the handler runs and reads anything."""
        outcome = yield from self._checkpoint.flow(call)
        if outcome is None:
            return ActiveCall(self, call, context)
        if not outcome.allowed:
            yield from self._withdraw(context)
            return ActiveCall(self, call, context, refusal=trailers.to_outcome(outcome))
        return ActiveCall(self, call, context, None if isinstance(outcome, Undecided) else outcome)

    def _withdraw(self, context: Any) -> Flow[None]:
        """Give back what interceptors before this one took, as they let the call pass."""
        for watched in limits_of(context):
            yield from value(watched.outcome.withdraw(self.asynchronous))
            watched.replace_fields(trailers.fields(watched.outcome.named_decisions))

    def settle(self, outcome: Outcome, status: Status) -> Flow[None]:
        """Give back what need not be counted. The call has ended, so errors are only logged."""
        try:
            assert self._count_when is not None
            counts = yield from value(self._count_when(status))
            settle = outcome.confirm if counts else outcome.give_back
            yield from value(settle(self.asynchronous))
        except Exception:
            logger.exception("a call to %s stays counted", status.call.method)

    def keep(self, outcome: Outcome) -> Flow[None]:
        """Keep it counted, without asking ``count_when``."""
        yield from value(outcome.confirm(self.asynchronous))

    def release(self, outcome: Outcome, settling: Flow[None] | None) -> Flow[None]:
        """Free the slots of rules with ``concurrency``, after settling."""
        if settling is not None:
            yield from settling
        yield from value(outcome.release(self.asynchronous))

    def reset(self) -> None:
        """Forget all counts, as between tests. A store that you gave is cleared completely."""
        self._checkpoint.reset()

    def close(self) -> None:
        """Stop watching the file of rules."""
        self._checkpoint.close()

    @property
    def settles(self) -> bool:
        return self._count_when is not None


def as_limiter(
    limiter: Limiter | AsyncLimiter | Limit | str, store: Store | str | None, asynchronous: bool
) -> Limiter:
    """The sync limiter, whose counters are used directly."""
    if isinstance(limiter, (str, Limit)):
        return Limiter(limiter, store)
    if store is not None:
        raise TypeError("a limiter has its store already")
    if isinstance(limiter, Limiter):
        return limiter
    if isinstance(limiter, AsyncLimiter) and asynchronous:
        return limiter._limiter
    kinds = "a Limiter or an AsyncLimiter" if asynchronous else "a Limiter"
    raise TypeError(f"limiter is {kinds}, or a limit such as '100/minute', not {limiter!r:.100}")


class ActiveCall:
    """One call, from the decision to its end.

    ``context`` is for the handler. If there is a ``refusal``, the handler is not called.
    """

    __slots__ = (
        "_begun", "_call", "_context", "_ending", "_interceptor", "_watched", "context", "refusal",
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
        self._ending = threading.Lock()
        self._begun = False
        self.refusal = refusal
        self.context = self._context = context
        self._watched: Watched | None = None
        if outcome is not None:
            self._watched = self.context = Watched(
                context, trailers.fields(outcome.named_decisions), outcome
            )

    def trailing(self) -> Sequence[Any]:
        """The trailing metadata of the refusal, after what other interceptors have set."""
        assert self.refusal is not None
        return (*already_set(self.context), *self.refusal.metadata)

    def refusal_for(self, error: BaseException) -> Refusal | None:
        """How the call ends if its handler has raised one of our errors; None for others.

        Not for a stream that has begun: grpc.aio may be sending its last response.
        """
        if self._begun or (self._watched is not None and self._watched.answered):
            return None
        refusal = trailers.to_error(error)
        if refusal is not None:
            self.context.set_trailing_metadata((*already_set(self.context), *refusal.metadata))
        return refusal

    def responds(self) -> None:
        """A response is about to be sent."""
        self._begun = True
        if self._watched is not None:
            self._watched.answered = True

    def end(self, error: BaseException | None) -> Flow[None] | None:
        """What is left to do when the handler has ended. Only the first call counts."""
        watched = self._watched
        if watched is None:
            return None
        settling = self._settling(watched, error)
        if not watched.outcome.holds_slots:
            return settling
        return self._interceptor.release(watched.outcome, settling)

    def _settling(self, watched: Watched, error: BaseException | None) -> Flow[None] | None:
        if not self._interceptor.settles or watched.outcome.returned:
            return None  # there is nothing to settle, or a limit after this one has refused
        if not self._ending.acquire(blocking=False):
            return None
        code, raised = final_code(watched, error)
        if is_gone(self._context, error):
            if left_by_itself(watched, error):
                keep = Status(code, self._call).failed
            else:
                keep = not watched.answered  # it is unknown what the handler had done
                code, raised = grpc.StatusCode.CANCELLED, None
            if keep:
                return self._interceptor.keep(watched.outcome)
        return self._interceptor.settle(watched.outcome, Status(code, self._call, raised))
