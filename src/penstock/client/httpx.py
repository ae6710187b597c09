"""Transports for httpx that wait for their turn: `PacedTransport`, `AsyncPacedTransport`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, Never, NoReturn, TypeVar

from penstock.client.calls import Caller, NotSent, OutgoingRequest
from penstock.client.retries import Retries
from penstock.client.settings import (
    DEFAULT_TIMEOUT,
    LocalLimit,
    Settings,
    Timeout,
    check_inner,
    check_known,
    origin,
)
from penstock.clock import Clock
from penstock.flow_steps import Step, drive, drive_async

try:
    import httpx
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"PacedTransport needs {error.name}: pip install 'penstock[client]'", name=error.name
    ) from None

# The extension of a response that says how the call went.
EXTENSION = "penstock"

Key = Callable[[httpx.Request], str]
Transport = TypeVar("Transport", httpx.BaseTransport, httpx.AsyncBaseTransport)

_ERRORS = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError)


class HttpxNotSent(NotSent, httpx.TimeoutException):
    """`NotSent` that is also a time-out of httpx."""


class _Paced(Generic[Transport]):
    """The options and the calls of both transports."""

    _tasks: bool
    _interface: type[Transport]
    _default: type[Transport]

    def __init__(
        self,
        limit: LocalLimit | None = None,
        *,
        key: Key | None = None,
        retries: Retries | int = 5,
        timeout: Timeout = DEFAULT_TIMEOUT,
        learn: bool = True,
        transport: Transport | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] | None = None,
        **unknown: Never,
    ) -> None:
        check_known(type(self).__name__, unknown)
        key = _origin if key is None else key
        self._settings = Settings(limit, key, retries, timeout, learn, clock, chance)
        self._inner: Transport = check_inner(transport, self._interface, self._default, "transport")
        self._caller = Caller(self._settings, self._tasks, _ERRORS, HttpxNotSent)

    def _call(
        self,
        request: httpx.Request,
        send: Callable[[httpx.Request], Any],
        detach: Callable[[httpx.Response], Any],
    ) -> Generator[Step, Any, httpx.Response]:
        outgoing = OutgoingRequest(
            self._settings.key(request),
            request.method,
            replayable=isinstance(request.stream, httpx.ByteStream),
            keyed="idempotency-key" in request.headers,
        )
        try:
            response, tries = yield from self._caller.call(outgoing, partial(send, request), detach)
        except HttpxNotSent as error:
            error.request = request
            raise
        assert isinstance(response, httpx.Response)
        response.extensions[EXTENSION] = tries
        return response


class PacedTransport(_Paced[httpx.BaseTransport], httpx.BaseTransport):
    """Waits for its turn before each call, and retries refused calls where that is safe.

    ``httpx.Client(transport=PacedTransport(limit="10/second"))``

    - ``limit``: a local limit: a limit's text, a `Limit`, or a `Limiter` that may be shared; None
      (the default) relies on what the server says
    - ``key``: a function of the request that returns the key by which calls are queued and
      counted; by default scheme, host and port
    - ``retries``: the maximum number of retries for one call, or a `Retries`
    - ``timeout``: within which the last try of a call must be sent, including waits and earlier
      tries: seconds, a text such as ``"5s"``, or a timedelta; None for no bound. A try in
      progress is not cut short
    - ``learn``: whether to pace calls by what earlier answers said
    - ``transport``: the transport that sends, by default ``httpx.HTTPTransport()``
    - ``clock``, ``chance``: the time, and a random number from 0 to 1; for tests

    ``response.extensions["penstock"]`` holds the call's `Tries`. A refusal that is not retried is
    returned as it is; `NotSent` (also an ``httpx.TimeoutException``) is raised if nothing was
    sent.
    """

    _tasks = False
    _interface = httpx.BaseTransport
    _default = httpx.HTTPTransport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send ``request`` when its turn comes; called by ``httpx.Client``."""
        return drive(self._call(request, self._inner.handle_request, _detach))

    def close(self) -> None:
        """Close the transport that sends."""
        self._inner.close()

    def handle_async_request(self, request: httpx.Request) -> NoReturn:
        """Raises a TypeError: an ``httpx.AsyncClient`` needs an `AsyncPacedTransport`."""
        raise _not_for("AsyncClient", "AsyncPacedTransport")

    def __aenter__(self) -> NoReturn:
        raise _not_for("AsyncClient", "AsyncPacedTransport")

    async def aclose(self) -> None:
        """Close the transport that sends, if it was given to an ``httpx.AsyncClient``."""
        self.close()

    def __enter__(self) -> PacedTransport:
        self._inner.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._inner.__exit__(*exception)


class AsyncPacedTransport(_Paced[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport):
    """`PacedTransport` for ``httpx.AsyncClient``: same options, same results.

    ``httpx.AsyncClient(transport=AsyncPacedTransport(limit="10/second"))``. A waiting task
    may be cancelled at any point: the calls behind it move up.
    """

    _tasks = True
    _interface = httpx.AsyncBaseTransport
    _default = httpx.AsyncHTTPTransport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send ``request`` when its turn comes; called by ``httpx.AsyncClient``."""
        return await drive_async(
            self._call(request, self._inner.handle_async_request, _detach_async)
        )

    async def aclose(self) -> None:
        """Close the transport that sends."""
        await self._inner.aclose()

    def handle_request(self, request: httpx.Request) -> NoReturn:
        """Raises a TypeError: an ``httpx.Client`` needs a `PacedTransport`."""
        raise _not_for("Client", "PacedTransport")

    def __enter__(self) -> NoReturn:
        raise _not_for("Client", "PacedTransport")

    def close(self) -> None:
        """Called by an ``httpx.Client``, with which nothing was sent."""

    async def __aenter__(self) -> AsyncPacedTransport:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._inner.__aexit__(*exception)


def _not_for(client: str, transport: str) -> TypeError:
    return TypeError(f"write httpx.{client}(transport={transport}(...)): the other does not fit")


def _origin(request: httpx.Request) -> str:
    return origin(request.url.scheme, request.url.host, request.url.port)


def _detach(response: httpx.Response) -> httpx.Response:
    assert isinstance(response.stream, httpx.SyncByteStream)
    try:
        body = b"".join(response.stream)
    finally:
        response.close()
    return _with_body(response, body)


async def _detach_async(response: httpx.Response) -> httpx.Response:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    try:
        body = b"".join([chunk async for chunk in response.stream])
    finally:
        await response.aclose()
    return _with_body(response, body)


def _with_body(response: httpx.Response, body: bytes) -> httpx.Response:
    """The same response with its body in memory, still encoded."""
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        stream=httpx.ByteStream(body),
        extensions=dict(response.extensions),
    )
