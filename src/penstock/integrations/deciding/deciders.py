"""What decides on a request: limits with a key, or a gate with rules.

``R`` is the request: `Request` for HTTP, a `Call` for gRPC.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any, Generic, TypeVar

from penstock.async_gate import AnyGate, AsyncGate
from penstock.decision import Decision
from penstock.errors import StoreError
from penstock.gate import Gate
from penstock.integrations.deciding.descriptors import ADDRESS, Descriptors, Dimension, Family
from penstock.integrations.deciding.outcome import (
    FromGate,
    FromLimits,
    Named,
    Outcome,
    by_gate,
    limits_in,
    needs_answer,
    undecided,
)
from penstock.integrations.deciding.waiting import Flow
from penstock.limit import Limit, as_limit
from penstock.limiter import MOST_KNOWN, Limiter
from penstock.rules.deciding.taken import Taken
from penstock.stores.base import Counters, Store

R = TypeVar("R")
Limits = Limit | str | Sequence[Limit | str] | None

OPEN, CLOSED = "open", "closed"


class ByLimits(Generic[R]):
    """One key against one limit or several: all of them pass, or nothing is taken.

    ``limit`` is a limit, several, a function of the request, or None for the limiter's own.
    ``settles``: whether a request counts is known only when it has ended.
    """

    def __init__(
        self,
        limiter: Limiter,
        limit: Limits | Callable[[R], Limits | Awaitable[Limits]],
        key: Callable[[R], str | Awaitable[str | None] | None],
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
        # Only a store that is elsewhere can be out of reach.
        self._on_failure = on_failure if self.store.waits else None
        self._known: dict[Limit | str | None, Counters] = {}
        self._limit_of = limit if callable(limit) else None
        # None if every request has a limit of its own.
        self.fixed: Named | None = None if callable(limit) else self._counted(limit)

    def decide(self, request: R, cost: int) -> Flow[Outcome | None]:
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
        if type(key) is not str:
            if isawaitable(key):
                key = yield key
            if key is None:
                return None
        try:
            if self._settles and needs_answer(counted):
                return (yield from undecided(self.store, counted, key, cost, self.waits))
            decisions = yield from self._hit(counted, key, cost)
        except StoreError as error:
            raise limits_in(error, counted) from None
        return FromLimits(counted, key, cost, decisions)

    def denial(self, request: R) -> Flow[Outcome | None]:
        """Limits have no deny lists."""
        return None
        yield

    def close(self) -> None:
        """Nothing is watched."""

    def _hit(self, counted: Named, key: str, cost: int) -> Flow[Sequence[Decision]]:
        if len(counted) == 1:
            counters = counted[0][1]
            if self.waits:
                return ((yield counters.submit("hit", key, cost)),)
            return (counters.hit(key, cost),)
        wanted = [(counters, key, cost) for _, counters in counted]
        if self.waits:
            return (yield self.store.hit_each_async(wanted))  # type: ignore[no-any-return]
        return self.store.hit_each(wanted)

    def _counted(self, limits: Limits) -> Named:
        """The counters of one limit or several, with the names that clients see."""
        if limits is None or isinstance(limits, (str, Limit)):
            return ((self._name, self._counters(limits)),)
        if not isinstance(limits, Sequence):
            as_limit(limits)  # says what is wrong with it
        counters = dict.fromkeys(self._counters(limit) for limit in limits)
        if len(limits) == 1:
            return [(self._name, each) for each in counters]
        return [(each.limit.counted_as, each) for each in counters]

    def _counters(self, limit: Limit | str | None) -> Counters:
        if self._on_failure is None:
            return self._limiter.counters(limit)
        counters = self._known.get(limit)
        if counters is None:
            counters = self._limiter.counters(limit)
            if counters.limit.on_failure is None:
                changed = counters.limit.changed(on_failure=self._on_failure)
                counters = self._limiter.counters(changed)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[limit] = counters
        return counters


class ByGate(Generic[R]):
    """Rules, asked about what they want to know of a request."""

    def __init__(
        self,
        gate: AnyGate | str | Path,
        dimensions: Mapping[str, Dimension[R] | str],
        family: Family[R],
        *,
        domain: str | None,
        store: Store | None,
        on_failure: str | None,
        watch: bool,
        asynchronous: bool,
    ) -> None:
        self.gate = as_gate(gate, store, asynchronous)
        self.gate.group(ADDRESS)
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
        asynchronous = self._asynchronous
        outcome = yield from by_gate(self.gate, descriptors, self._domain, cost, asynchronous)
        return outcome if self._on_failure is None else outcome.under(self._on_failure == CLOSED)

    def denial(self, request: R) -> Flow[Outcome | None]:
        """For what is not counted: None, unless it is on a deny list."""
        if not self._descriptors.denies:
            return None
        descriptors = yield from self._descriptors.flow(request)
        verdict = self.gate.denial(*descriptors, domain=self._domain)
        if verdict is None:
            return None
        return FromGate(self.gate, descriptors, self._domain, verdict, Taken())

    def close(self) -> None:
        """Stop watching the file of rules, if it does."""
        if self._watches:
            self.gate.close()


def as_gate(gate: AnyGate | str | Path, store: Store | None, asynchronous: bool) -> AnyGate:
    if isinstance(gate, (str, Path)):
        kind = AsyncGate if asynchronous else Gate
        return kind.from_file(gate, store=store)
    if store is not None:
        raise TypeError("a gate has its store already")
    if not isinstance(gate, AsyncGate if asynchronous else Gate):
        wanted = "an AsyncGate" if asynchronous else "a Gate"
        raise TypeError(f"gate is {wanted}, or the path of a file of rules, not {gate!r:.100}")
    return gate
