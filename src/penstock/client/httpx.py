"""Transports for httpx that wait for their turn: `PacedTransport`, `AsyncPacedTransport`."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from penstock.client.calls import Caller, NotSent, OutgoingRequest
from penstock.client.drivers import run, run_async
from penstock.client.retries import Retries
from penstock.client.settings import DEFAULT_TIMEOUT, LocalLimit, settings
from penstock.clock import Clock

try:
    import httpx
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"PacedTransport needs {error.name}: pip install 'penstock[client]'", name=error.name
    ) from None

# The extension of a response that says how the call went.
EXTENSION = "penstock"

Key = Callable[[httpx.Request], str]

_ERRORS = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError)


class HttpxNotSent(NotSent, httpx.TimeoutException):
    """`NotSent` that is also a time-out of httpx."""


class PacedTransport(httpx.BaseTransport):
    """Waits for its turn before each call, and retries refused calls where that is safe.

    ``httpx.Client(transport=PacedTransport(limit="10/second"))``

    - ``limit``: a local limit: a limit's text, a `Limit`, or a `Limiter` that may be shared; None
      (the default) relies on what the server says
    - ``key``: a function of the request that returns the key by which calls are queued and
      counted; by default scheme, host and port
    - ``retries``: the maximum number of retries for one call, or a `Retries`
    - ``timeout``: seconds within which the last try of a call must be sent, including waits and
      earlier tries; None for no bound. A try in progress is not cut short
    - ``learn``: whether to pace calls by what earlier answers said
    - ``transport``: the transport that sends, by default ``httpx.HTTPTransport()``
    - ``clock``, ``chance``: the time, and a random number from 0 to 1; for tests

    ``response.extensions["penstock"]`` holds the call's `Tries`. A refusal that is not retried is
    returned as it is; `NotSent` (also an ``httpx.TimeoutException``) is raised if nothing was
    sent.
    """

    def __init__(
        self,
        limit: LocalLimit | None = None,
        *,
        key: Key | None = None,
        retries: Retries | int = 5,
        timeout: float | None = DEFAULT_TIMEOUT,
        learn: bool = True,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] | None = None,
    ) -> None:
        told = settings(limit, retries, timeout, learn, clock, chance)
        self._key = _checked(key)
        if transport is not None and not isinstance(transport, httpx.BaseTransport):
            raise TypeError(f"transport must be like httpx.HTTPTransport(), not {transport!r}")
        self._caller = Caller(told, False, _ERRORS, HttpxNotSent)
        self._inner = httpx.HTTPTransport() if transport is None else transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send ``request`` when its turn comes; called by ``httpx.Client``."""
        call = self._caller.call(_described(request, self._key))
        try:
            response, tries = run(call, lambda: self._inner.handle_request(request), _keep)
        except HttpxNotSent as error:
            error.request = request
            raise
        response.extensions[EXTENSION] = tries
        assert isinstance(response, httpx.Response)
        return response

    def close(self) -> None:
        """Close the transport that sends."""
        self._inner.close()

    def __enter__(self) -> PacedTransport:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._inner.__exit__(kind, error, trace)


class AsyncPacedTransport(httpx.AsyncBaseTransport):
    """`PacedTransport` for ``httpx.AsyncClient``: same options, same results.

    ``httpx.AsyncClient(transport=AsyncPacedTransport(limit="10/second"))``. A waiting task
    may be cancelled at any point: the calls behind it move up.
    """

    def __init__(
        self,
        limit: LocalLimit | None = None,
        *,
        key: Key | None = None,
        retries: Retries | int = 5,
        timeout: float | None = DEFAULT_TIMEOUT,
        learn: bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] | None = None,
    ) -> None:
        told = settings(limit, retries, timeout, learn, clock, chance)
        self._key = _checked(key)
        if transport is not None and not isinstance(transport, httpx.AsyncBaseTransport):
            raise TypeError(f"transport must be like httpx.AsyncHTTPTransport(), not {transport!r}")
        self._caller = Caller(told, True, _ERRORS, HttpxNotSent)
        self._inner = httpx.AsyncHTTPTransport() if transport is None else transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send ``request`` when its turn comes; called by ``httpx.AsyncClient``."""
        call = self._caller.call(_described(request, self._key))
        try:
            response, tries = await run_async(
                call, lambda: self._inner.handle_async_request(request), _keep_async
            )
        except HttpxNotSent as error:
            error.request = request
            raise
        response.extensions[EXTENSION] = tries
        assert isinstance(response, httpx.Response)
        return response

    async def aclose(self) -> None:
        """Close the transport that sends."""
        await self._inner.aclose()

    async def __aenter__(self) -> AsyncPacedTransport:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)


def _checked(key: Key | None) -> Key:
    if key is not None and not callable(key):
        raise TypeError(f"key must be a function of the request to a str, not {key!r:.100}")
    return key or _origin


def _origin(request: httpx.Request) -> str:
    url = request.url
    port = url.port or {"https": 443, "http": 80}.get(url.scheme, 0)
    return f"{url.scheme}://{url.host}:{port}"


def _described(request: httpx.Request, key: Key) -> OutgoingRequest:
    return OutgoingRequest(
        key(request),
        request.method,
        replayable=isinstance(request.stream, httpx.ByteStream),
        keyed="idempotency-key" in request.headers,
    )


def _keep(response: httpx.Response) -> httpx.Response:
    assert isinstance(response.stream, httpx.SyncByteStream)
    try:
        body = b"".join(response.stream)
    finally:
        response.close()
    return _with_body(response, body)


async def _keep_async(response: httpx.Response) -> httpx.Response:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    try:
        body = b"".join([chunk async for chunk in response.stream])
    finally:
        await response.aclose()
    return _with_body(response, body)


def _with_body(response: httpx.Response, body: bytes) -> httpx.Response:
    """The same response with its body in memory, still encoded."""
    extensions: dict[str, Any] = dict(response.extensions)
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        stream=httpx.ByteStream(body),
        extensions=extensions,
    )
