"""A client middleware for aiohttp that waits for its turn: `PacedMiddleware`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.client.calls import Caller, NotSent, OutgoingRequest
from penstock.client.retries import Retries
from penstock.client.settings import DEFAULT_TIMEOUT, LocalLimit, Settings, Timeout, origin
from penstock.clock import Clock
from penstock.flow_steps import drive_async

try:
    import aiohttp
    from multidict import CIMultiDictProxy
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"PacedMiddleware needs {error.name}: pip install 'penstock[client-aiohttp]'",
        name=error.name,
    ) from None

Key = Callable[[aiohttp.ClientRequest], str]

_ERRORS = (aiohttp.ClientConnectionError,)


class AiohttpNotSent(NotSent, aiohttp.ServerTimeoutError):
    """`NotSent` that is also a time-out of aiohttp."""


class PacedMiddleware:
    """Waits for its turn before each call, and retries refused calls where that is safe.

    ``aiohttp.ClientSession(middlewares=[PacedMiddleware(limit="10/second")])``

    Its options are those of `PacedTransport`, except ``transport``: the session sends. Sessions
    that have the same middleware share its queues. ``response.penstock`` holds the call's `Tries`.
    `NotSent` (also an ``aiohttp.ServerTimeoutError``) is raised if nothing was sent.

    The ``total`` of aiohttp's ``ClientTimeout``, 300 seconds by default, includes the time that a
    call waits here.
    """

    def __init__(
        self,
        limit: LocalLimit | None = None,
        *,
        key: Key | None = None,
        retries: Retries | int = 5,
        timeout: Timeout = DEFAULT_TIMEOUT,
        learn: bool = True,
        clock: Clock | None = None,
        chance: Callable[[], float] | None = None,
    ) -> None:
        key = _origin if key is None else key
        self._settings = Settings(limit, key, retries, timeout, learn, clock, chance)
        self._caller = Caller(self._settings, True, _ERRORS, AiohttpNotSent)

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send ``request`` when its turn comes; called by ``aiohttp.ClientSession``."""

        async def send() -> _Answer:
            response = await handler(request)
            return _Answer(response, response.status, _Headers(response.headers))

        outgoing = OutgoingRequest(
            self._settings.key(request),
            request.method,
            replayable=isinstance(request.body, (bytes, aiohttp.BytesPayload)),
            keyed="Idempotency-Key" in request.headers,
        )
        answer, tries = await drive_async(self._caller.call(outgoing, send, _detach))
        assert isinstance(answer, _Answer)
        answer.response.__dict__["penstock"] = tries
        return answer.response


class _Headers:
    """Headers of which several lines are one list, as HTTP defines it."""

    def __init__(self, headers: CIMultiDictProxy[str]) -> None:
        self._headers = headers

    def get(self, name: str, default: None = None, /) -> str | None:
        lines = self._headers.getall(name, ())
        return ", ".join(lines) if lines else default


@dataclass(slots=True)
class _Answer:
    """A response, with what `Caller` reads of it under the names of httpx and requests."""

    response: aiohttp.ClientResponse
    status_code: int
    headers: _Headers


def _origin(request: aiohttp.ClientRequest) -> str:
    return origin(request.url.scheme, request.url.host, request.url.port)


async def _detach(answer: _Answer) -> _Answer:
    try:
        await answer.response.read()  # which also releases the connection
    except BaseException:
        answer.response.close()
        raise
    return answer
