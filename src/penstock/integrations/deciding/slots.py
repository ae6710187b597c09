"""How many requests run at once: the options of the concurrency middleware. Any framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, TypedDict, TypeVar

from penstock import switch
from penstock.arguments import timeout_ns
from penstock.concurrency import NORMAL, AsyncConcurrencyLimiter, ConcurrencyLimiter, Size
from penstock.concurrency.queue_policy import check_priority
from penstock.errors import NoSlot
from penstock.integrations.deciding.error_responses import no_slot
from penstock.integrations.deciding.exempt import as_exempt
from penstock.integrations.deciding.identity import X_FORWARDED_FOR
from penstock.integrations.deciding.keys import as_key
from penstock.integrations.deciding.proxy_notice import trust_of
from penstock.integrations.deciding.request import Request
from penstock.integrations.deciding.responses import Answer
from penstock.integrations.deciding.waiting import Flow, finish, finish_async, value
from penstock.stores.base import check_key

L = TypeVar("L", ConcurrencyLimiter, AsyncConcurrencyLimiter)

# The statuses of an application that itself waits for too much: a size that adapts counts them.
OVERLOADED = (503, 504)


class NeededSlot(TypedDict):
    """The arguments of a limiter's ``slot`` for one request."""

    key: str
    priority: int
    by: Hashable
    timeout: float | None


class Slots:
    """Which slot a request needs, and the response if there is none.

    - ``key``: a text, or a function of the request; each key has slots of its own
    - ``priority``: a number, or a function of the request
    - ``by``: a function of the request, for turns between those who wait
    - ``timeout``: seconds to wait in the queue; None for as long as it takes
    - ``exempt``, ``trusted``, ``hops``, ``forwarded``, ``enabled``: as in `HttpCheckpoint`
    """

    def __init__(
        self,
        *,
        key: str | Callable[[Request], Any] = "requests",
        priority: int | Callable[[Request], Any] = NORMAL,
        by: Callable[[Request], Any] | None = None,
        timeout: float | None = 30.0,
        exempt: Iterable[str] | Callable[[Request], bool | Awaitable[bool]] = (),
        trusted: Iterable[str] = (),
        hops: int = 0,
        forwarded: str = X_FORWARDED_FOR,
        enabled: bool | None = None,
    ) -> None:
        self._enabled = switch.is_enabled(enabled)
        if by is not None:
            by = as_key(by, "by")
        self._key = as_key(key) if callable(key) else check_key(key)
        self._priority = priority if callable(priority) else check_priority(priority)
        self._by = by
        timeout_ns(timeout)  # a wrong one is an error now
        self._timeout = timeout
        self._exempt = as_exempt(exempt)
        self._trust = trust_of(trusted, hops, forwarded)

    def needed(self, request: Request) -> NeededSlot | None:
        """For threads. None: it needs no slot."""
        return finish(self._flow(request))

    async def needed_async(self, request: Request) -> NeededSlot | None:
        """For coroutines. None: it needs no slot."""
        return await finish_async(self._flow(request))

    def _flow(self, request: Request) -> Flow[NeededSlot | None]:
        if not self._enabled or switch.off:
            return None
        request.trust = self._trust
        if self._exempt is not None and (yield from value(self._exempt(request))):
            return None
        values: list[Any] = []
        for option in (self._key, self._priority, self._by):
            values.append((yield from value(option(request))) if callable(option) else option)
        key, priority, by = values
        return NeededSlot(key=key, priority=priority, by=by, timeout=self._timeout)

    def refusal(self, error: NoSlot, request: Request) -> Answer:
        return no_slot(error, request.header("accept") or "")


def as_limiter(kind: type[L], limit: int | Size | L, waiting: int | None) -> L:
    """A limiter of this kind, with its own queue if ``limit`` is one already."""
    if isinstance(limit, kind):
        if waiting is not None:
            raise TypeError("waiting is the limiter's own")
        return limit
    return kind(limit, waiting=waiting or 0)  # type: ignore[arg-type]  # a limiter of the other kind is refused there
