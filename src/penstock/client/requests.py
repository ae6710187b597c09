"""An adapter for requests that waits for its turn: `PacedAdapter`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from penstock.client.calls import Caller, NotSent, OutgoingRequest
from penstock.client.retries import Retries
from penstock.client.settings import (
    DEFAULT_TIMEOUT,
    LocalLimit,
    Settings,
    Timeout,
    check_inner,
    origin,
)
from penstock.clock import Clock
from penstock.flow_steps import drive

try:
    import requests
    import requests.adapters
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"PacedAdapter needs {error.name}: pip install requests", name=error.name
    ) from None

Key = Callable[[requests.PreparedRequest], str]

_ERRORS = (requests.exceptions.ConnectionError, requests.exceptions.Timeout)


class RequestsNotSent(NotSent, requests.exceptions.Timeout):
    """`NotSent` that is also a time-out of requests."""


class PacedAdapter(requests.adapters.BaseAdapter):
    """Waits for its turn before each call, and retries refused calls where that is safe.

    ``session.mount("https://", PacedAdapter(limit="10/second"))``

    Its options are those of `PacedTransport`; ``adapter`` is the adapter that sends, by default
    ``requests.adapters.HTTPAdapter()``. ``response.penstock`` holds the call's `Tries`. `NotSent`
    (also a ``requests.Timeout``) is raised if nothing was sent.
    """

    def __init__(
        self,
        limit: LocalLimit | None = None,
        *,
        key: Key | None = None,
        retries: Retries | int = 5,
        timeout: Timeout = DEFAULT_TIMEOUT,
        learn: bool = True,
        adapter: requests.adapters.BaseAdapter | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] | None = None,
    ) -> None:
        super().__init__()
        key = _origin if key is None else key
        self._settings = Settings(limit, key, retries, timeout, learn, clock, chance)
        self._inner: requests.adapters.BaseAdapter = check_inner(
            adapter, requests.adapters.BaseAdapter, requests.adapters.HTTPAdapter, "adapter"
        )
        self._caller = Caller(self._settings, False, _ERRORS, RequestsNotSent)

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: float | tuple[float, float] | tuple[float, None] | None = None,
        verify: bool | str = True,
        cert: bytes | str | tuple[bytes | str, bytes | str] | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send ``request`` when its turn comes; called by ``requests.Session``."""

        def send() -> requests.Response:
            return self._inner.send(request, stream, timeout, verify, cert, proxies)

        body: Any = request.body
        outgoing = OutgoingRequest(
            self._settings.key(request),
            (request.method or "GET").upper(),
            replayable=body is None or isinstance(body, (bytes, str)),
            keyed="Idempotency-Key" in request.headers,
        )
        try:
            response, tries = drive(self._caller.call(outgoing, send, _detach))
        except RequestsNotSent as error:
            error.request = request
            raise
        assert isinstance(response, requests.Response)
        # A challenge response (digest log-in) comes through here as well.
        response.__dict__["connection"] = self
        response.__dict__["penstock"] = tries
        return response

    def close(self) -> None:
        """Close the adapter that sends."""
        self._inner.close()


def _origin(request: requests.PreparedRequest) -> str:
    url = urlsplit(request.url or "")
    return origin(url.scheme, url.hostname, url.port)


def _detach(response: requests.Response) -> requests.Response:
    try:
        _ = response.content  # reads all of it, which releases the connection
    finally:
        response.close()
    return response
