"""How many requests at once: what a middleware was told, made ready. Knows no framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from inspect import isawaitable
from typing import Any, NamedTuple

from penstock.arguments import timeout_ns
from penstock.concurrency import NORMAL
from penstock.concurrency.queue_policy import check_priority
from penstock.errors import NoSlot
from penstock.integrations.deciding import http
from penstock.integrations.deciding.exempt import Exempt, as_exempt
from penstock.integrations.deciding.identity import X_FORWARDED_FOR, Trust
from penstock.integrations.deciding.raised import no_slot
from penstock.integrations.deciding.request import Request
from penstock.integrations.deciding.waiting import Flow, finish, finish_async
from penstock.stores.base import check_key

Of = Callable[[Request], Any]


class NeededSlot(NamedTuple):
    """The slot that a request needs."""

    key: str
    priority: int
    by: Hashable


class Slots:
    """Which slot a request needs, and what it is told if there is none.

    - ``key``: a text, or a function of the request; each key has slots of its own
    - ``priority``: a number, or a function of the request
    - ``by``: a function of the request, for turns between those who wait
    - ``timeout``: seconds to wait in the line; None for as long as it takes
    - ``exempt``, ``trusted``, ``hops``, ``forwarded``: as in `HttpCheckpoint`
    """

    def __init__(
        self,
        *,
        key: str | Of = "requests",
        priority: int | Of = NORMAL,
        by: Of | None = None,
        timeout: float | None = 30.0,
        exempt: Iterable[str] | Callable[[Request], bool | Awaitable[bool]] = (),
        trusted: Iterable[str] = (),
        hops: int = 0,
        forwarded: str = X_FORWARDED_FOR,
    ) -> None:
        if by is not None and not callable(by):
            raise TypeError(f"by is a function of the request, such as by_user, not {by!r:.100}")
        self._key = key if callable(key) else check_key(key)
        self._priority = priority if callable(priority) else check_priority(priority)
        self._by = by
        timeout_ns(timeout)  # a wrong one is an error now
        self.timeout = timeout
        self._exempt: Exempt = as_exempt(exempt)
        self._trust = Trust(trusted, hops, forwarded)

    def needed(self, request: Request) -> NeededSlot | None:
        """For threads. None: it needs no slot."""
        return finish(self._flow(request))

    async def needed_async(self, request: Request) -> NeededSlot | None:
        """For coroutines. None: it needs no slot."""
        return await finish_async(self._flow(request))

    def _flow(self, request: Request) -> Flow[NeededSlot | None]:
        request.trust = self._trust
        if self._exempt is not None:
            exempt = self._exempt(request)
            if type(exempt) is not bool and isawaitable(exempt):
                exempt = yield exempt
            if exempt:
                return None
        values: list[Any] = []
        for value in (self._key, self._priority, self._by):
            if callable(value):
                value = value(request)
                if isawaitable(value):
                    value = yield value
            values.append(value)
        return NeededSlot(*values)

    def refusal(self, error: NoSlot, request: Request) -> http.Answer:
        return no_slot(error, request.header("accept") or "")
