"""Checkpoint: one request, from who asks to whether it may go ahead. Knows no framework.

`Checkpoint.flow` is written once for threads and coroutines: a generator that yields only
what has to be awaited. With plain functions and a store in memory it never yields.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from inspect import isawaitable, iscoroutinefunction
from pathlib import Path
from typing import Any

from penstock.async_gate import AnyGate, AsyncGate
from penstock.clock import WALL, Clock
from penstock.decision import Decision
from penstock.durations import SECOND
from penstock.errors import StoreError
from penstock.events import Hook, Hooks, Refused
from penstock.gate import Gate
from penstock.integrations import http
from penstock.integrations.descriptors import ADDRESS, Descriptors, Dimension, no_waiting
from penstock.integrations.dimensions import DIMENSIONS, family
from penstock.integrations.exempt import Exempt, as_exempt
from penstock.integrations.identity import X_FORWARDED_FOR, Trust
from penstock.integrations.keys import KeyFunction, by_ip, by_route, by_user
from penstock.integrations.outcome import (
    FromGate,
    FromLimits,
    Outcome,
    Unclear,
    Undecided,
    by_gate,
    fails_closed,
    limits_in,
    needs_answer,
    undecided,
)
from penstock.integrations.paths import AmbiguousPath
from penstock.integrations.request import Request, Response
from penstock.limit import Limit, as_limit
from penstock.limiter import Limiter
from penstock.rules.deciding.taken import Taken
from penstock.stores.base import Counters, Store, check_clock, check_cost
from penstock.stores.memory import MemoryStore

logger = logging.getLogger("penstock")

Limits = Limit | str | Sequence[Limit | str] | None
LimitFunction = Callable[[Request], Limits | Awaitable[Limits]]
CostFunction = Callable[[Request], int | Awaitable[int]]
CountWhen = Callable[[Response], bool]
Flow = Generator[Awaitable[Any], Any, Outcome | None]

OPEN, CLOSED = "open", "closed"


class Checkpoint:
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
        self.asynchronous = asynchronous
        if not isinstance(name, str) or not name:
            raise TypeError(f"name is a non-empty str, not {name!r:.100}")
        self._name = name
        self.trust = Trust(trusted, hops, forwarded)
        self._exempt: Exempt = as_exempt(exempt)
        self._count_preflight = _yes_or_no(count_preflight, "count_preflight")
        self.count_when = _check_count_when(count_when)
        self._shadow = _yes_or_no(shadow, "shadow")
        if on_failure not in (None, OPEN, CLOSED):
            raise ValueError(f"on_failure is 'open' or 'closed', not {on_failure!r:.100}")
        self._on_failure = on_failure
        self.fields = http.check_fields(fields)
        self._hooks = Hooks()
        if hook is not None:
            self._hooks.add(hook)
        self.clock = check_clock(clock) or WALL
        self._cost = cost if callable(cost) else check_cost(cost)
        self._gate: AnyGate | None = None
        self._plain = False
        if (gate is None) == (limit is None):
            raise TypeError("give either limit='100/minute' or gate='rules.yaml'")
        if gate is not None:
            self._take_gate(gate, key, store, domain, dimensions or {})
        else:
            self._take_limit(limit, key, store, domain, dimensions)
        self._watches = _yes_or_no(watch, "watch")
        if watch:
            if self._gate is None or not isinstance(gate, (str, Path)):
                raise TypeError("watch is for gate='rules.yaml'; a Gate has a watch() of its own")
            self._gate.watch()

    # Construction ------------------------------------------------------------------------

    def _take_gate(
        self,
        gate: AnyGate | str | Path,
        key: KeyFunction,
        store: Store | None,
        domain: str | None,
        dimensions: Mapping[str, Dimension[Request] | str],
    ) -> None:
        if key is not by_ip:
            raise TypeError("with a gate, rules say what is counted by; give dimensions, not a key")
        if isinstance(gate, (str, Path)):
            kind = AsyncGate if self.asynchronous else Gate
            gate = kind.from_file(gate, store=store)
        elif store is not None:
            raise TypeError("a gate has its store already")
        if not isinstance(gate, AsyncGate if self.asynchronous else Gate):
            wanted = "an AsyncGate" if self.asynchronous else "a Gate"
            raise TypeError(f"gate is {wanted}, or the path of a file of rules, not {gate!r:.100}")
        gate.group(ADDRESS)
        self._gate = gate
        self._store = gate.store
        self._domain = domain
        self._descriptors = Descriptors(gate, {**DIMENSIONS, **dimensions}, family, domain)
        self._decide = self._by_gate

    def _take_limit(
        self,
        limit: Limits | LimitFunction,
        key: KeyFunction,
        store: Store | None,
        domain: str | None,
        dimensions: object,
    ) -> None:
        if domain is not None or dimensions is not None:
            raise TypeError("domain and dimensions are for a gate; a limit has a key")
        if not callable(key):
            raise TypeError(f"key is a function from a request to a key, not {key!r:.100}")
        self._key = key
        self._limiter = Limiter(store=MemoryStore() if store is None else store)
        self._store = self._limiter.store
        self._waits = self._store.waits and self.asynchronous
        self._limit_of: LimitFunction | None = None
        self._fixed: list[tuple[str, Counters]] | None = None
        if callable(limit):
            self._limit_of = limit
        else:
            self._fixed = self._counted(limit)
            if not self._fixed:
                raise ValueError("limit is an empty list: give at least one, as ['100/minute']")
        self._decide = self._by_limits
        # Keys of ours are texts at once; of others nobody knows before they are called.
        known = key is by_ip or key is by_user or key is by_route
        single = self._fixed is not None and len(self._fixed) == 1
        fixed = type(self._cost) is int and self._exempt is None
        if self.count_when is not None and single and needs_answer(self._fixed or ()):
            fixed = False
        self._plain = known and single and fixed and not self._waits

    def _counted(self, limits: Limits) -> list[tuple[str, Counters]]:
        """The counters of one limit or several, with the names that clients see."""
        if limits is None:
            return []
        several = [limits] if isinstance(limits, (str, Limit)) else list(limits)
        made = []
        for each in several:
            limit = as_limit(each)
            if self._on_failure is not None and limit.on_failure is None:
                limit = limit.changed(on_failure=self._on_failure)
            made.append(self._limiter.counters(limit))
        if len(made) == 1:
            return [(self._name, made[0])]
        return [(counters.limit.counted_as, counters) for counters in dict.fromkeys(made)]

    # Deciding ----------------------------------------------------------------------------

    def check(self, request: Request) -> Outcome | None:
        """For threads. None: nobody counts this request."""
        flow = self.flow(request)
        try:
            waiting = next(flow)
        except StopIteration as end:
            outcome: Outcome | None = end.value
            return outcome
        raise no_waiting(waiting)

    async def check_async(self, request: Request) -> Outcome | None:
        """For coroutines. None: nobody counts this request."""
        flow = self.flow(request)
        try:
            waiting = next(flow)
            while True:
                try:
                    answer = await waiting
                except Exception as error:
                    waiting = flow.throw(error)  # it may know what to do about it
                else:
                    waiting = flow.send(answer)
        except StopIteration as end:
            outcome: Outcome | None = end.value
            return outcome

    def flow(self, request: Request) -> Flow:
        """Yields what has to be awaited; returns the outcome."""
        request.trust = self.trust
        if self._exempt is not None:
            exempt = self._exempt(request)
            if type(exempt) is not bool and isawaitable(exempt):
                exempt = yield exempt
            if exempt:
                return (yield from self._by_deny_lists(request))
        if request.method == "OPTIONS" and not self._count_preflight and request.is_preflight:
            return (yield from self._by_deny_lists(request))
        cost = self._cost
        if callable(cost):
            found = cost(request)
            if type(found) is not int and isawaitable(found):
                found = yield found
            cost = check_cost(found)
        try:
            outcome = yield from self._decide(request, cost)
        except StoreError as error:
            outcome = self._failed(error)
        except AmbiguousPath as error:
            outcome = Unclear(str(error))
        if outcome is not None and not outcome.allowed:
            self._refused(outcome)
        return outcome

    def _by_deny_lists(self, request: Request) -> Flow:
        """For what is not counted: None, unless it is on a deny list."""
        gate = self._gate
        if gate is None or not self._descriptors.denies:
            return None
        outcome: Outcome
        try:
            descriptors = yield from self._descriptors.flow(request)
            verdict = gate.denial(*descriptors, domain=self._domain)
            if verdict is None:
                return None
            outcome = FromGate(gate, descriptors, self._domain, verdict, Taken())
        except AmbiguousPath as error:
            outcome = Unclear(str(error))
        if not outcome.allowed:
            self._refused(outcome)
        return outcome

    def quick(self, request: Request) -> Outcome | None:
        """The whole of `flow` in the plainest case, which is most people's.

        None if it is not that: then nothing was done.
        """
        if not self._plain or request.method == "OPTIONS":
            return None
        request.trust = self.trust
        key: Any = self._key(request)
        counted: Any = self._fixed
        cost: Any = self._cost
        try:
            outcome: Outcome = FromLimits(counted, key, cost, (counted[0][1].hit(key, cost),))
        except StoreError as error:
            outcome = self._failed(limits_in(error, counted))
        if not outcome.allowed:
            self._refused(outcome)
        return outcome

    def _failed(self, error: StoreError) -> Outcome:
        logger.warning("a request was not counted, as the store failed: %s", error)
        return Undecided(not fails_closed(error, self._on_failure, self._store))

    def _refused(self, outcome: Outcome) -> None:
        outcome.shadow = self._shadow
        if self._hooks:
            self._hooks.emit(Refused("integrations", outcome.key, outcome.shadow))
        outcome.allowed = self._shadow

    def _by_limits(self, request: Request, cost: int) -> Flow:
        counted = self._fixed
        if counted is None:
            assert self._limit_of is not None
            limits: Any = self._limit_of(request)
            if isawaitable(limits):
                limits = yield limits
            counted = self._counted(limits)
        if not counted:
            return None
        key: Any = self._key(request)
        if type(key) is not str:
            if isawaitable(key):
                key = yield key
            if key is None:
                return None
        try:
            if self.count_when is not None and needs_answer(counted):
                return (yield from undecided(self._store, counted, key, cost, self._waits))
            decisions = yield from self._hit(counted, key, cost)
        except StoreError as error:
            raise limits_in(error, counted) from None
        return FromLimits(counted, key, cost, decisions)

    def _hit(
        self, counted: Sequence[tuple[str, Counters]], key: str, cost: int
    ) -> Generator[Awaitable[Any], Any, Sequence[Decision]]:
        if len(counted) == 1:
            counters = counted[0][1]
            if self._waits:
                return ((yield counters.submit("hit", key, cost)),)
            return (counters.hit(key, cost),)
        wanted = [(counters, key, cost) for _, counters in counted]
        if self._waits:
            return (yield self._store.hit_each_async(wanted))  # type: ignore[no-any-return]
        return self._store.hit_each(wanted)

    def _by_gate(self, request: Request, cost: int) -> Flow:
        assert self._gate is not None
        descriptors = yield from self._descriptors.flow(request)
        if not descriptors:
            return None
        outcome = yield from by_gate(self._gate, descriptors, self._domain, cost, self.asynchronous)
        return outcome if self._on_failure is None else outcome.under(self._on_failure == CLOSED)

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

    def close(self) -> None:
        """Stop watching the file of rules, if it does."""
        if self._watches and self._gate is not None:
            self._gate.close()


def _check_count_when(function: Any) -> Any:
    if function is not None and (not callable(function) or iscoroutinefunction(function)):
        raise TypeError(
            f"count_when is a function, and no coroutine function, not {function!r:.100}"
        )
    return function


def _yes_or_no(value: Any, name: str) -> bool:
    """The text of an environment variable is true, also if it says ``"false"``."""
    if type(value) is not bool:
        raise TypeError(f"{name} is True or False, not {value!r:.100}")
    return value
