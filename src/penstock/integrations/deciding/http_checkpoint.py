"""HttpCheckpoint: the `Checkpoint` of HTTP requests, with the options of all middleware."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from penstock import switch
from penstock.async_gate import AnyGate
from penstock.clock import WALL, Clock
from penstock.durations import SECOND
from penstock.errors import StoreError
from penstock.events import Hook
from penstock.integrations.deciding import responses
from penstock.integrations.deciding.checkpoint import Checkpoint, check_on_failure, yes_or_no
from penstock.integrations.deciding.deciders import (
    ByGate,
    ByLimits,
    Limits,
    has_lockouts,
    with_policies,
)
from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.deciding.dimensions import DIMENSIONS, family
from penstock.integrations.deciding.exempt import as_exempt
from penstock.integrations.deciding.identity import X_FORWARDED_FOR
from penstock.integrations.deciding.key_limits import ByKeys
from penstock.integrations.deciding.keys import (
    KeyFunction,
    as_key,
    as_keys,
    by_ip,
    by_route,
    by_user,
)
from penstock.integrations.deciding.outcome import FromLimits, Outcome, Unclear, Undecided
from penstock.integrations.deciding.proxy_notice import trust_of
from penstock.integrations.deciding.request import Request, Response
from penstock.integrations.deciding.waiting import Flow
from penstock.limiter import Limiter
from penstock.stores.base import Store, check_clock
from penstock.stores.memory import MemoryStore

LimitFunction = Callable[[Request], Limits | Awaitable[Limits]]
# A limit, several, a function of the request, or limits by key: {by_ip: "10/minute"}.
AnyLimits = Limits | LimitFunction | Mapping[KeyFunction, Limits | LimitFunction]
CostFunction = Callable[[Request], int | Awaitable[int]]
CountWhen = Callable[[Response], bool]


class HttpCheckpoint(Checkpoint[Request]):
    """Checks HTTP requests, and makes the responses to refused ones.

    - ``limit``: text, `Limit`, several of them, or a function of the request; or ``gate``:
      a `Gate`, or the path of a file of rules
    - ``key``: a function of the request. For several keys, ``limit`` is a dict from each key to
      its limits
    - ``cost``: units, or a function of the request
    - ``store``: where to count; by default in this process
    - ``name``: of the limit, in headers, if there is only one
    - ``domain``, ``dimensions``: for a gate, see `Descriptors`; ``known``: the dimensions that
      need not be given; ``watch``: reload its file of rules when it changes
    - ``trusted``, ``hops``, ``forwarded``: which proxies are trusted, see `Trust`
    - ``exempt``: paths such as ``"/health"`` and ``"/static/*"``, or a function; exempt
      requests are not counted, but deny lists still apply
    - ``count_preflight``: count CORS preflight requests; deny lists always apply to them
    - ``count_when``: a function of the `Response`; if it returns False, the hit is given back
    - ``shadow``: decide and report, but refuse no request
    - ``on_failure``: if the store is not available: ``"open"``, or ``"closed"``
    - ``fields``: which headers to send: ``"both"``, ``"ietf"``, ``"legacy"``, ``"none"``
    - ``hook``: called with a `penstock.events.Refused` for every request that is refused, or
      would be
    - ``enabled``: False: nothing is decided and no headers are added; None: as
      ``PENSTOCK_ENABLED`` says
    """

    def __init__(
        self,
        *,
        asynchronous: bool,
        limit: AnyLimits = None,
        gate: AnyGate | str | Path | None = None,
        key: KeyFunction = by_ip,
        cost: int | CostFunction = 1,
        store: Store | str | None = None,
        name: str = "default",
        domain: str | None = None,
        dimensions: Mapping[str, Dimension[Request] | str] | None = None,
        known: Mapping[str, Dimension[Request]] = DIMENSIONS,
        watch: bool = False,
        trusted: Iterable[str] = (),
        hops: int = 0,
        forwarded: str = X_FORWARDED_FOR,
        exempt: Iterable[str] | Callable[[Request], bool | Awaitable[bool]] = (),
        count_preflight: bool = False,
        count_when: CountWhen | None = None,
        shadow: bool = False,
        on_failure: str | None = None,
        fields: str = responses.BOTH,
        hook: Hook | None = None,
        clock: Clock = WALL,
        enabled: bool | None = None,
    ) -> None:
        self.trust = trust_of(trusted, hops, forwarded)
        self._count_preflight = yes_or_no(count_preflight, "count_preflight")
        self.count_when = _check_count_when(count_when)
        self.fields = responses.check_fields(fields)
        self.clock = check_clock(clock) or WALL
        check_on_failure(on_failure)
        yes_or_no(watch, "watch")
        if (gate is None) == (limit is None):
            raise TypeError("give either limit='100/minute' or gate='rules.yaml'")
        decider: ByLimits[Request] | ByKeys[Request] | ByGate[Request]
        if gate is not None:
            if key is not by_ip:
                raise TypeError(
                    "with a gate, rules say what is counted by; give dimensions, not a key"
                )
            decider = ByGate(
                gate, {**known, **(dimensions or {})}, family,
                domain=domain, store=store, on_failure=on_failure, watch=watch,
                asynchronous=asynchronous,
            )  # fmt: skip
        else:
            if domain is not None or dimensions is not None:
                raise TypeError("domain and dimensions are for a gate; a limit has a key")
            if watch:
                raise TypeError("watch is for gate='rules.yaml'; a Gate has a watch() of its own")
            limiter = Limiter(store=MemoryStore() if store is None else store)
            settles = count_when is not None
            if isinstance(limit, Mapping):
                if key is not by_ip:
                    raise TypeError("limit is a dict from keys to limits: give no other key")
                decider = ByKeys(
                    limiter, as_keys(limit),
                    on_failure=on_failure, asynchronous=asynchronous, settles=settles,
                )  # fmt: skip
            else:
                decider = ByLimits(
                    limiter, limit, as_key(key),
                    name=name, on_failure=on_failure, asynchronous=asynchronous, settles=settles,
                )  # fmt: skip
                if decider.fixed is not None and not decider.fixed:
                    raise ValueError("limit is an empty list: give at least one, as ['100/minute']")
        super().__init__(
            decider, asynchronous=asynchronous, cost=cost, exempt=as_exempt(exempt),
            shadow=yes_or_no(shadow, "shadow"), on_failure=on_failure, hook=hook,
            source="integrations", enabled=enabled,
        )  # fmt: skip
        self._plain = self.enabled and isinstance(decider, ByLimits) and self._is_plain(decider)

    def _is_plain(self, decider: ByLimits[Request]) -> bool:
        """Whether `quick` can decide."""
        # These key functions return text. Others may have to be awaited.
        self._key: Any = decider.key
        self._fixed: Any = decider.fixed
        known = self._key is by_ip or self._key is by_user or self._key is by_route
        single = self._fixed is not None and len(self._fixed) == 1
        plain = type(self._cost) is int and self._exempt is None and not decider.waits
        if self.count_when is not None and single and has_lockouts(self._fixed or ()):
            return False
        return known and single and plain

    # Deciding ----------------------------------------------------------------------------

    def flow(self, request: Request, exempt: Any = False) -> Flow[Outcome | None]:
        request.trust = self.trust
        if request.method == "OPTIONS" and not self._count_preflight:
            exempt = exempt or request.is_preflight
        return super().flow(request, exempt)

    def quick(self, request: Request) -> Outcome | None:
        """A fast path of `flow` for the most common case.

        None if it does not apply: then nothing was done.
        """
        if not self._plain or switch.off or request.method == "OPTIONS":
            return None
        request.trust = self.trust
        key = self._key(request)
        counted = self._fixed
        cost: Any = self._cost
        try:
            outcome: Outcome = FromLimits(counted, key, cost, (counted[0][1].hit(key, cost),))
        except StoreError as error:
            outcome = self._failed(with_policies(error, counted))
        if not outcome.allowed:
            self._refused(outcome)
        return outcome

    # Afterwards --------------------------------------------------------------------------

    def settle(self, outcome: Outcome, response: Response) -> Awaitable[Any] | None:
        """Give back what need not be counted. Returns what has to be awaited, if anything."""
        if self.count_when is None:
            return None
        if self.count_when(response):
            return outcome.confirm(self.asynchronous)
        return outcome.give_back(self.asynchronous)

    def answer(self, outcome: Outcome, request: Request) -> responses.Answer:
        """The response to a refused request."""
        accept = request.header("accept") or ""
        if isinstance(outcome, Undecided):
            return responses.unavailable(503, "Rate limits cannot be checked", 1, accept)
        if isinstance(outcome, Unclear):
            return responses.bad_request(outcome.error, accept)
        return responses.refusal(
            outcome.named_decisions, self.now(), self.fields, accept, outcome.denied
        )

    def headers(self, outcome: Outcome) -> list[responses.Header]:
        """For the response to a request that went ahead."""
        return responses.fields(outcome.named_decisions, self.now(), self.fields)

    def now(self) -> float:
        """Seconds since 1970."""
        return self.clock.now() / SECOND


def _check_count_when(function: Any) -> Any:
    if function is not None and (not callable(function) or iscoroutinefunction(function)):
        raise TypeError(
            f"count_when is a function, and no coroutine function, not {function!r:.100}"
        )
    return function
