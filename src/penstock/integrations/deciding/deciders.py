"""What decides on a request: limits with a key, or a gate with rules.

``R`` is the request: `Request` for HTTP, a `Call` for gRPC.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any, Generic, TypeVar

from penstock.async_gate import AnyGate, AsyncGate
from penstock.combined import parts_of
from penstock.decision import Decision
from penstock.errors import StoreError
from penstock.flow_steps import drive, drive_async
from penstock.gate import Gate
from penstock.integrations.deciding.descriptors import Descriptors, Dimension, Family
from penstock.integrations.deciding.outcome import FromGate, FromLimits, NamedCounters, Outcome
from penstock.integrations.deciding.waiting import Flow
from penstock.limiter import MOST_KNOWN, Limiter
from penstock.limits import Limit, not_a_limit
from penstock.rules.aliases import ADDRESSES
from penstock.rules.deciding.store_calls import Taken
from penstock.stores.base import Counters, Store
from penstock.undecided_hits import has_lockout, take

R = TypeVar("R")
Limits = Limit | str | Sequence[Limit | str] | None

OPEN, CLOSED = "open", "closed"


class ByLimits(Generic[R]):
    """One key against one limit or several: all of them pass, or nothing is taken.

    ``limit`` is a limit, several, a function of the request, or None for the limiter's own.
    ``key`` always returns a key.
    ``settles``: there is a ``count_when``, so that only the response says what counts.
    """

    def __init__(
        self,
        limiter: Limiter,
        limit: Limits | Callable[[R], Limits | Awaitable[Limits]],
        key: Callable[[R], Any],
        *,
        name: str,
        on_failure: str | None,
        asynchronous: bool,
        settles: bool,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"name is a non-empty str, not {name!r:.100}")
        self._name = name
        self._settles = settles
        self._limiter = limiter
        self.key = key
        self.store = limiter.store
        self.waits = asynchronous and self.store.waits
        # Only a remote store can be unavailable.
        self._on_failure = on_failure if self.store.waits else None
        self._known: dict[Limit | str | None, tuple[Counters, ...]] = {}
        self._limit_of = limit if callable(limit) else None
        # None if the limit is a function of the request.
        self.fixed: NamedCounters | None = None if callable(limit) else self._counted(limit)

    def decide(self, request: R, cost: int) -> Flow[Outcome | None]:
        match = yield from self.find(request)
        if match is None:
            return None
        counted, key = match
        try:
            if self._settles and has_lockouts(counted):
                # Only the response says whether the request counts towards a lockout.
                flow = take(self.store, [(counters, key, cost) for _, counters in counted])
                taken = (yield drive_async(flow)) if self.waits else drive(flow)
                return FromLimits(counted, key, cost, taken.decisions, taken.settle)
            decisions = yield from self._hit(counted, key, cost)
        except StoreError as error:
            raise with_policies(error, counted) from None
        return FromLimits(counted, key, cost, decisions)

    def find(self, request: R) -> Flow[tuple[NamedCounters, str] | None]:
        """The counters and the key; None if the request is not counted."""
        counted = self.fixed
        if counted is None:
            assert self._limit_of is not None
            limits: Any = self._limit_of(request)
            if isawaitable(limits):
                limits = yield limits
            if limits is None:
                return None
            counted = self._counted(limits)
        if not counted:
            return None
        key: Any = self.key(request)
        if type(key) is not str and isawaitable(key):
            key = yield key
        return counted, key

    def denial(self, request: R) -> Flow[Outcome | None]:
        """Limits have no deny lists."""
        return None
        yield

    def close(self) -> None:
        """Nothing is watched."""

    def _hit(self, counted: NamedCounters, key: str, cost: int) -> Flow[Sequence[Decision]]:
        if len(counted) == 1:
            counters = counted[0][1]
            if self.waits:
                return ((yield counters.submit("hit", key, cost)),)
            return (counters.hit(key, cost),)
        wanted = [(counters, key, cost) for _, counters in counted]
        if self.waits:
            return (yield self.store.hit_each_async(wanted))  # type: ignore[no-any-return]
        return self.store.hit_each(wanted)

    def _counted(self, limits: Limits) -> NamedCounters:
        """The counters of one limit or several, with their names in headers."""
        if limits is None or isinstance(limits, (str, Limit)):
            parts = self._parts(limits)
            if len(parts) == 1:
                return ((self._name, parts[0]),)
            return [(each.limit.counted_as, each) for each in parts]
        if not isinstance(limits, Sequence):
            raise not_a_limit(limits)
        counters = dict.fromkeys(each for limit in limits for each in self._parts(limit))
        if len(limits) == 1 and len(counters) == 1:
            return [(self._name, each) for each in counters]
        return [(each.limit.counted_as, each) for each in counters]

    def _parts(self, limit: Limit | str | None) -> tuple[Counters, ...]:
        """The counters of each limit that a text names: mostly one."""
        if self._on_failure is None:
            return parts_of(self._limiter.counters(limit))
        parts = self._known.get(limit)
        if parts is None:
            named = parts_of(self._limiter.counters(limit))
            parts = tuple([self._under_policy(counters) for counters in named])
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[limit] = parts
        return parts

    def _under_policy(self, counters: Counters) -> Counters:
        if counters.limit.on_failure is not None:
            return counters
        return self._limiter.counters(counters.limit.changed(on_failure=self._on_failure))


class ByGate(Generic[R]):
    """Descriptors of the request against the rules of a gate."""

    def __init__(
        self,
        gate: AnyGate | str | Path,
        dimensions: Mapping[str, Dimension[R] | str],
        family: Family[R],
        *,
        domain: str | None,
        store: Store | str | None,
        on_failure: str | None,
        watch: bool,
        asynchronous: bool,
    ) -> None:
        self.gate = as_gate(gate, store, asynchronous)
        for name in ADDRESSES:
            self.gate.group(name)
        self.store = self.gate.store
        self._asynchronous = asynchronous
        self._domain = domain
        self._on_failure = on_failure
        self._descriptors = Descriptors(self.gate, dimensions, family, domain)
        if watch and isinstance(gate, AnyGate):
            raise TypeError("watch is for gate='rules.yaml'; a Gate has a watch() of its own")
        self._watches = watch
        if watch:
            self.gate.watch()

    def decide(self, request: R, cost: int) -> Flow[Outcome | None]:
        descriptors = yield from self._descriptors.flow(request)
        if not descriptors:
            return None
        taken = Taken()  # so that exactly what was taken can be given back
        waits = self._asynchronous and self.store.waits
        gate, domain = self.gate, self._domain
        try:
            if isinstance(gate, Gate):
                verdict = gate.check_into(taken, descriptors, domain, cost)
            elif waits:
                verdict = yield gate.check_into(taken, descriptors, domain, cost)
            else:
                verdict = gate.check_into_now(taken, descriptors, domain, cost)
        except BaseException:
            (taken.give_back_async if waits else taken.give_back)()
            raise
        outcome = FromGate(gate, descriptors, domain, verdict, taken)
        return outcome if self._on_failure is None else outcome.under(self._on_failure == CLOSED)

    def denial(self, request: R) -> Flow[Outcome | None]:
        """For exempt requests: None, unless on a deny list."""
        if not self._descriptors.denies:
            return None
        descriptors = yield from self._descriptors.flow(request)
        verdict = self.gate.denial(*descriptors, domain=self._domain)
        if verdict is None:
            return None
        return FromGate(self.gate, descriptors, self._domain, verdict, Taken())

    def close(self) -> None:
        """Stop watching the file of rules."""
        if self._watches:
            self.gate.close()


def as_gate(gate: AnyGate | str | Path, store: Store | str | None, asynchronous: bool) -> AnyGate:
    if isinstance(gate, (str, Path)):
        kind = AsyncGate if asynchronous else Gate
        return kind.from_file(gate, store=store)
    if store is not None:
        raise TypeError("a gate has its store already")
    if not isinstance(gate, AsyncGate if asynchronous else Gate):
        wanted = "an AsyncGate" if asynchronous else "a Gate"
        raise TypeError(f"gate is {wanted}, or the path of a file of rules, not {gate!r:.100}")
    return gate


def has_lockouts(counted: NamedCounters) -> bool:
    return any(has_lockout(counters) for _, counters in counted)


def with_policies(error: StoreError, counted: NamedCounters) -> StoreError:
    """The error, with the failure policies of the limits that could not be checked."""
    error.policies = tuple(counters.limit.on_failure for _, counters in counted)
    return error


def fails_closed(error: StoreError, on_failure: str | None, store: Store) -> bool:
    """Whether the request is refused. A limit's own policy takes precedence."""
    default = on_failure or store.on_failure
    return CLOSED in [policy or default for policy in error.policies or (None,)]
