"""What decides on a call: a limiter with a key, or a gate with rules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from penstock.async_gate import AnyGate, AsyncGate
from penstock.async_limiter import AsyncLimiter
from penstock.decision import Decision
from penstock.errors import StoreError
from penstock.gate import Gate
from penstock.integrations.descriptors import ADDRESS, Descriptors, Dimension
from penstock.integrations.grpc.call import Call, KeyFunction
from penstock.integrations.grpc.flow import Flow, value
from penstock.integrations.outcome import (
    FromGate,
    FromLimits,
    Named,
    Outcome,
    by_gate,
    limits_in,
    needs_answer,
    undecided,
)
from penstock.limit import Limit, as_limit
from penstock.limiter import MOST_KNOWN, Limiter
from penstock.rules.deciding.taken import Taken
from penstock.stores.base import Counters, Store

Limits = Limit | str | Sequence[Limit | str] | None
LimitFunction = Callable[[Call], Limits | Awaitable[Limits]]


class ByLimiter:
    """One key against one limit or several: all of them pass, or nothing is taken."""

    def __init__(
        self,
        limiter: Limiter | AsyncLimiter | Limit | str,
        key: KeyFunction,
        limit: Limits | LimitFunction,
        *,
        store: Store | None,
        name: str,
        on_failure: str | None,
        asynchronous: bool,
        settles: bool,
    ) -> None:
        self._settles = settles
        self._limiter = as_limiter(limiter, store, asynchronous)
        if not isinstance(name, str) or not name:
            raise TypeError(f"name is a non-empty str, not {name!r:.100}")
        self._name = name
        if not callable(key):
            raise TypeError(f"key is a function from a call to a key, not {key!r:.100}")
        self._key = key
        self.store = self._limiter.store
        self._waits = asynchronous and self.store.waits
        # Only a store that is elsewhere can be out of reach.
        self._on_failure = on_failure if self._limiter.store.waits else None
        self._known: dict[Limit | str | None, Counters] = {}
        self._limit_of: LimitFunction | None = limit if callable(limit) else None
        self._fixed: Named = () if callable(limit) else self._counted(limit)

    def decide(self, call: Call, cost: int) -> Flow[Outcome | None]:
        counted = self._fixed
        if self._limit_of is not None:
            limits = yield from value(self._limit_of(call))
            if limits is None:
                return None
            counted = self._counted(limits)
        key = yield from value(self._key(call))
        if key is None or not counted:
            return None
        try:
            if self._settles and needs_answer(counted):
                return (yield from undecided(self._limiter.store, counted, key, cost, self._waits))
            decisions = yield from self._hit(counted, key, cost)
        except StoreError as error:
            raise limits_in(error, counted) from None
        return FromLimits(counted, key, cost, decisions)

    def _hit(self, counted: Named, key: str, cost: int) -> Flow[Sequence[Decision]]:
        if len(counted) == 1:
            counters = counted[0][1]
            if self._waits:
                return ((yield counters.submit("hit", key, cost)),)
            return (counters.hit(key, cost),)
        wanted = [(counters, key, cost) for _, counters in counted]
        if self._waits:
            return (yield self.store.hit_each_async(wanted))  # type: ignore[no-any-return]
        return self.store.hit_each(wanted)

    def _counted(self, limits: Limits) -> Named:
        """The counters of one limit or several, with the names that clients see."""
        if limits is None or isinstance(limits, (str, Limit)):
            return ((self._name, self._counters(limits)),)
        if not isinstance(limits, Sequence):
            as_limit(limits)  # says what is wrong with it
        made = dict.fromkeys(self._counters(limit) for limit in limits)
        return [(counters.limit.counted_as, counters) for counters in made]

    def _counters(self, limit: Limit | str | None) -> Counters:
        if self._on_failure is None:
            return self._limiter.counters(limit)
        found = self._known.get(limit)
        if found is None:
            found = self._limiter.counters(limit)
            if found.limit.on_failure is None:
                changed = found.limit.changed(on_failure=self._on_failure)
                found = self._limiter.counters(changed)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[limit] = found
        return found


class ByGate:
    """Rules, asked about what they want to know of a call."""

    def __init__(
        self,
        gate: AnyGate | str | Path,
        domain: str | None,
        dimensions: Mapping[str, Dimension[Call] | str],
        *,
        store: Store | None,
        watch: bool,
        asynchronous: bool,
    ) -> None:
        self._gate = as_gate(gate, store, asynchronous)
        self._gate.group(ADDRESS)
        self.store = self._gate.store
        self._asynchronous = asynchronous
        self._domain = domain
        found = {**DIMENSIONS, **dimensions}
        self._descriptors = Descriptors(self._gate, found, family, domain)
        if watch and isinstance(gate, AnyGate):
            raise TypeError("watch is for gate='rules.yaml'; a Gate has a watch() of its own")
        self._watches = watch
        if watch:
            self._gate.watch()

    def decide(self, call: Call, cost: int) -> Flow[Outcome | None]:
        descriptors = yield from self._descriptors.flow(call)
        if not descriptors:
            return None
        asynchronous = self._asynchronous
        return (yield from by_gate(self._gate, descriptors, self._domain, cost, asynchronous))

    def denial(self, call: Call) -> Flow[Outcome | None]:
        """For calls that are not counted: None, unless a deny list refuses them."""
        descriptors = yield from self._descriptors.flow(call)
        verdict = self._gate.denial(*descriptors, domain=self._domain)
        if verdict is None:
            return None
        return FromGate(self._gate, descriptors, self._domain, verdict, Taken())

    @property
    def denies(self) -> bool:
        """Whether there is any deny list to be on."""
        return self._descriptors.denies

    def close(self) -> None:
        if self._watches:
            self._gate.close()


DIMENSIONS: Mapping[str, Dimension[Call] | str] = {
    ADDRESS: lambda call: call.address or "unknown",
    "method": lambda call: call.method,
    "service": lambda call: call.service,
}


def family(name: str) -> Dimension[Call] | None:
    """``metadata:NAME``, for every name."""
    kind, _, argument = name.partition(":")
    wanted = argument.strip().lower()
    return (lambda call: call.text(wanted)) if kind == "metadata" and wanted else None


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
