"""Limits with different keys: ``{by_ip: "10/minute", by_user: "1000/day"}``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

from penstock.errors import StoreError
from penstock.flow_steps import drive, drive_async
from penstock.integrations.deciding.deciders import ByLimits, Limits, has_lockouts, with_policies
from penstock.integrations.deciding.outcome import FromKeys, Outcome
from penstock.integrations.deciding.waiting import Flow
from penstock.limiter import Limiter
from penstock.stores.base import Counters
from penstock.undecided_hits import take

R = TypeVar("R")


class ByKeys(Generic[R]):
    """Several keys, each with one limit or several: all of them pass, or nothing is taken.

    Each key function always returns a key.
    """

    def __init__(
        self,
        limiter: Limiter,
        limits: Mapping[Callable[[R], Any], Limits | Callable[[R], Limits | Awaitable[Limits]]],
        *,
        on_failure: str | None,
        asynchronous: bool,
        settles: bool,
    ) -> None:
        if not limits:
            raise ValueError("limit is an empty dict: give at least one, as {by_ip: '100/minute'}")
        for limit in limits.values():
            if limit is None or (isinstance(limit, (list, tuple)) and not limit):
                raise ValueError(f"a key has no limit, but {limit!r}: leave it out of the dict")
        self._parts = [
            ByLimits(
                limiter, limit, key,
                name="default", on_failure=on_failure, asynchronous=asynchronous, settles=settles,
            )
            for key, limit in limits.items()
        ]  # fmt: skip
        self._settles = settles
        self.store = limiter.store
        self.waits = asynchronous and self.store.waits

    def decide(self, request: R, cost: int) -> Flow[Outcome | None]:
        # A limit that two keys share counts a request once if it has the same value for both:
        # by_user is the address of a client that is not logged in.
        hits: dict[tuple[Counters, str], None] = {}
        for part in self._parts:
            match = yield from part.find(request)
            if match is not None:
                limits, key = match
                hits |= dict.fromkeys((counters, key) for _, counters in limits)
        if not hits:
            return None
        counted = list(zip(_names(hits), (counters for counters, _ in hits), strict=True))
        keys = [key for _, key in hits]
        wanted = [(counters, key, cost) for counters, key in hits]
        try:
            if self._settles and has_lockouts(counted):
                flow = take(self.store, wanted)
                taken = (yield drive_async(flow)) if self.waits else drive(flow)
                return FromKeys(counted, keys, cost, taken.decisions, taken.settle)
            if self.waits:
                decisions = yield self.store.hit_each_async(wanted)
            else:
                decisions = self.store.hit_each(wanted)
        except StoreError as error:
            raise with_policies(error, counted) from None
        return FromKeys(counted, keys, cost, decisions)

    def denial(self, request: R) -> Flow[Outcome | None]:
        """Limits have no deny lists."""
        return None
        yield

    def close(self) -> None:
        """Nothing is watched."""


def _names(hits: Mapping[tuple[Counters, str], None]) -> list[str]:
    """The names in headers: the limits' texts, and a number where two have the same."""
    names: list[str] = []
    seen: dict[str, int] = {}
    for counters, _ in hits:
        text = counters.limit.counted_as
        seen[text] = seen.get(text, 0) + 1
        names.append(text if seen[text] == 1 else f"{text} ({seen[text]})")
    return names
