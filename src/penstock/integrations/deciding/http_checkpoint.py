"""HttpCheckpoint: the `Checkpoint` of HTTP requests, and how these are answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from penstock.async_gate import AnyGate
from penstock.clock import WALL, Clock
from penstock.durations import SECOND
from penstock.errors import StoreError
from penstock.events import Hook
from penstock.integrations.deciding import http
from penstock.integrations.deciding.checkpoint import Checkpoint, check_on_failure, yes_or_no
from penstock.integrations.deciding.deciders import ByGate, ByLimits, Limits
from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.deciding.dimensions import DIMENSIONS, family
from penstock.integrations.deciding.exempt import as_exempt
from penstock.integrations.deciding.identity import X_FORWARDED_FOR, Trust
from penstock.integrations.deciding.keys import KeyFunction, by_ip, by_route, by_user
from penstock.integrations.deciding.outcome import (
    FromLimits,
    Outcome,
    Unclear,
    Undecided,
    limits_in,
    needs_answer,
)
from penstock.integrations.deciding.request import Request, Response
from penstock.integrations.deciding.waiting import Flow
from penstock.limiter import Limiter
from penstock.stores.base import Store, check_clock
from penstock.stores.memory import MemoryStore

LimitFunction = Callable[[Request], Limits | Awaitable[Limits]]
CostFunction = Callable[[Request], int | Awaitable[int]]
CountWhen = Callable[[Response], bool]


class HttpCheckpoint(Checkpoint[Request]):
    """What a middleware was told, made ready.

    - ``limit``: text, `Limit`, several of them, or a function of the request; or ``gate``:
      a `Gate`, or the path of a file of rules
    - ``key``: a function of the request; ``cost``: units, or a function of the request
    - ``store``: where to count; default: this process
    - ``name``: of the limit, in headers, if there is only one
    - ``domain``, ``dimensions``: for a gate, see `Descriptors`; ``watch``: reload its file of
      rules when it changes
    - ``trusted``, ``hops``, ``forwarded``: which proxies are believed, see `Trust`
    - ``exempt``: paths such as ``"/health"`` and ``"/static/*"``, or a function; what is
      exempt is not counted, and deny lists apply to it all the same
    - ``count_preflight``: count the requests by which browsers ask whether they may ask;
      deny lists apply to them in any case
    - ``count_when``: a function of the `Response`; where it says no, the hit is given back
    - ``shadow``: decide and tell, and refuse nobody
    - ``on_failure``: when the store cannot be asked: ``"open"``, or ``"closed"``
    - ``fields``: which headers tell of limits: ``"both"``, ``"ietf"``, ``"legacy"``, ``"none"``
    - ``hook``: called with a `penstock.events.Refused` for everyone who is refused, or
      would be
    """

    def __init__(
        self,
        *,
        asynchronous: bool,
        limit: Limits | LimitFunction = None,
        gate: AnyGate | str | Path | None = None,
        key: KeyFunction = by_ip,
        cost: int | CostFunction = 1,
        store: Store | None = None,
        name: str = "default",
        domain: str | None = None,
        dimensions: Mapping[str, Dimension[Request] | str] | None = None,
        watch: bool = False,
        trusted: Iterable[str] = (),
        hops: int = 0,
        forwarded: str = X_FORWARDED_FOR,
        exempt: Iterable[str] | Callable[[Request], bool | Awaitable[bool]] = (),
        count_preflight: bool = False,
        count_when: CountWhen | None = None,
        shadow: bool = False,
        on_failure: str | None = None,
        fields: str = http.BOTH,
        hook: Hook | None = None,
        clock: Clock = WALL,
    ) -> None:
        self.trust = Trust(trusted, hops, forwarded)
        self._count_preflight = yes_or_no(count_preflight, "count_preflight")
        self.count_when = _check_count_when(count_when)
        self.fields = http.check_fields(fields)
        self.clock = check_clock(clock) or WALL
        check_on_failure(on_failure)
        yes_or_no(watch, "watch")
        if (gate is None) == (limit is None):
            raise TypeError("give either limit='100/minute' or gate='rules.yaml'")
        decider: ByLimits[Request] | ByGate[Request]
        if gate is not None:
            if key is not by_ip:
                raise TypeError(
                    "with a gate, rules say what is counted by; give dimensions, not a key"
                )
            decider = ByGate(
                gate, {**DIMENSIONS, **(dimensions or {})}, family,
                domain=domain, store=store, on_failure=on_failure, watch=watch,
                asynchronous=asynchronous,
            )  # fmt: skip
        else:
            if domain is not None or dimensions is not None:
                raise TypeError("domain and dimensions are for a gate; a limit has a key")
            if watch:
                raise TypeError("watch is for gate='rules.yaml'; a Gate has a watch() of its own")
            if not callable(key):
                raise TypeError(f"key is a function from a request to a key, not {key!r:.100}")
            decider = ByLimits(
                Limiter(store=MemoryStore() if store is None else store), limit, key,
                name=name, on_failure=on_failure, asynchronous=asynchronous,
                settles=count_when is not None,
            )  # fmt: skip
            if decider.fixed is not None and not decider.fixed:
                raise ValueError("limit is an empty list: give at least one, as ['100/minute']")
        super().__init__(
            decider, asynchronous=asynchronous, cost=cost, exempt=as_exempt(exempt),
            shadow=yes_or_no(shadow, "shadow"), on_failure=on_failure, hook=hook,
            source="integrations",
        )  # fmt: skip
        self._plain = isinstance(decider, ByLimits) and self._is_plain(decider)

    def _is_plain(self, decider: ByLimits[Request]) -> bool:
        """Whether `quick` can decide."""
        # Keys of ours are texts at once; of others nobody knows before they are called.
        self._key: Any = decider.key
        self._fixed: Any = decider.fixed
        known = self._key is by_ip or self._key is by_user or self._key is by_route
        single = self._fixed is not None and len(self._fixed) == 1
        plain = type(self._cost) is int and self._exempt is None and not decider.waits
        if self.count_when is not None and single and needs_answer(self._fixed or ()):
            return False
        return known and single and plain

    # Deciding ----------------------------------------------------------------------------

    def flow(self, request: Request) -> Flow[Outcome | None]:
        """Yields what has to be awaited; returns the outcome."""
        request.trust = self.trust
        if request.method == "OPTIONS" and not self._count_preflight:
            return self._flow(request, request.is_preflight)
        return self._flow(request)

    def quick(self, request: Request) -> Outcome | None:
        """The whole of `flow` in the plainest case, which is most people's.

        None if it is not that: then nothing was done.
        """
        if not self._plain or request.method == "OPTIONS":
            return None
        request.trust = self.trust
        key = self._key(request)
        counted = self._fixed
        cost: Any = self._cost
        try:
            outcome: Outcome = FromLimits(counted, key, cost, (counted[0][1].hit(key, cost),))
        except StoreError as error:
            outcome = self._failed(limits_in(error, counted))
        if not outcome.allowed:
            self._refused(outcome)
        return outcome

    # Afterwards --------------------------------------------------------------------------

    def settle(self, outcome: Outcome, response: Response) -> Awaitable[Any] | None:
        """Give back what need not be counted. What it returns, a coroutine has to await."""
        if self.count_when is None:
            return None
        if self.count_when(response):
            return outcome.confirm(self.asynchronous)
        return outcome.give_back(self.asynchronous)

    def answer(self, outcome: Outcome, request: Request) -> http.Answer:
        """To a request that was refused."""
        accept = request.header("accept") or ""
        if isinstance(outcome, Undecided):
            return http.unavailable(503, "Rate limits cannot be checked", 1, accept)
        if isinstance(outcome, Unclear):
            return http.bad_request(outcome.error, accept)
        return http.refusal(outcome.told, self.now(), self.fields, accept, outcome.denied)

    def headers(self, outcome: Outcome) -> list[http.Header]:
        """For an answer to a request that went ahead."""
        return http.fields(outcome.told, self.now(), self.fields)

    def now(self) -> float:
        """Seconds since 1970."""
        return self.clock.now() / SECOND


def _check_count_when(function: Any) -> Any:
    if function is not None and (not callable(function) or iscoroutinefunction(function)):
        raise TypeError(
            f"count_when is a function, and no coroutine function, not {function!r:.100}"
        )
    return function
