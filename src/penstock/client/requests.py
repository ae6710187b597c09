"""An adapter for requests that waits for its turn: `PacedAdapter`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from penstock.client.calls import Caller, NotSent, OutgoingRequest
from penstock.client.drivers import run
from penstock.client.retries import Retries
from penstock.client.settings import DEFAULT_TIMEOUT, LocalLimit, settings
from penstock.clock import Clock

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
        timeout: float | None = DEFAULT_TIMEOUT,
        learn: bool = True,
        adapter: requests.adapters.BaseAdapter | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] | None = None,
    ) -> None:
        super().__init__()
        told = settings(limit, retries, timeout, learn, clock, chance)
        if key is not None and not callable(key):
            raise TypeError(f"key must be a function of the request to a str, not {key!r}")
        if adapter is not None and not isinstance(adapter, requests.adapters.BaseAdapter):
            raise TypeError(f"adapter must be like HTTPAdapter(), not {adapter!r:.100}")
        self._key = key or _origin
        self._caller = Caller(told, False, _ERRORS, RequestsNotSent)
        self._inner = requests.adapters.HTTPAdapter() if adapter is None else adapter

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

        call = self._caller.call(_described(request, self._key))
        try:
            response, tries = run(call, send, _keep)
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
    port = url.port or {"https": 443, "http": 80}.get(url.scheme, 0)
    return f"{url.scheme}://{url.hostname}:{port}"


def _described(request: requests.PreparedRequest, key: Key) -> OutgoingRequest:
    body: Any = request.body
    return OutgoingRequest(
        key(request),
        (request.method or "GET").upper(),
        replayable=body is None or isinstance(body, (bytes, str)),
        keyed="Idempotency-Key" in request.headers,
    )


def _keep(response: requests.Response) -> requests.Response:
    try:
        _ = response.content  # reads all of it, which releases the connection
    finally:
        response.close()
    return response
