"""A server that plays a script, under all transports, on a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import aiohttp
import httpx
import requests
from multidict import CIMultiDict
from requests.adapters import BaseAdapter
from urllib3 import HTTPResponse
from yarl import URL as Url

from penstock.client import (
    AsyncPacedTransport,
    PacedAdapter,
    PacedMiddleware,
    PacedTransport,
    Tries,
)
from penstock.testing import FakeClock

URL = "https://api.example.com/things"
# What a call sees: a status, and headers; "down" is a connection that fails.
Answer = tuple[int, dict[str, str]] | str


@dataclass
class Script:
    """Plays its answers in order, the last one for ever; notes when each call came."""

    answers: list[Answer]
    clock: FakeClock = field(default_factory=FakeClock)
    seen: list[float] = field(default_factory=list)
    closed: int = 0
    bodies: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = self.clock.now()

    def next(self, body: bytes = b"") -> tuple[int, dict[str, str]] | None:
        answer = self.answers[min(len(self.seen), len(self.answers) - 1)]
        self.seen.append(round((self.clock.now() - self.began) / 1e9, 6))
        self.bodies.append(body)
        return None if isinstance(answer, str) else answer

    @property
    def now(self) -> float:
        return round((self.clock.now() - self.began) / 1e9, 6)


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that knows whether it was let go of."""

    def __init__(self, script: Script, text: bytes) -> None:
        self._script = script
        self._text = text

    def __iter__(self) -> Any:
        yield self._text

    async def __aiter__(self) -> Any:
        yield self._text

    def close(self) -> None:
        self._script.closed += 1

    async def aclose(self) -> None:
        self._script.closed += 1


class Httpx(httpx.BaseTransport, httpx.AsyncBaseTransport):
    def __init__(self, script: Script) -> None:
        self._script = script

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._answer(request, request.read())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        return self._answer(request, await request.aread())

    def _answer(self, request: httpx.Request, body: bytes) -> httpx.Response:
        answer = self._script.next(body)
        if answer is None:
            raise httpx.ConnectError("down", request=request)
        status, headers = answer
        return httpx.Response(status, headers=headers, stream=Body(self._script, b"said"))


class Requests(BaseAdapter):
    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        body = request.body
        if body is not None and not isinstance(body, (bytes, str)):
            body = b"".join(body)
        answer = self._script.next(body.encode() if isinstance(body, str) else body or b"")
        if answer is None:
            raise requests.exceptions.ConnectionError("down", request=request)
        response = requests.Response()
        response.status_code, headers = answer
        response.headers.update(headers)
        response.raw = HTTPResponse(BytesIO(b"said"), preload_content=False)
        response.request = request
        response.url = request.url or ""
        release = response.raw.release_conn

        def released() -> None:
            self._script.closed += 1
            release()

        response.raw.release_conn = released
        return response

    def close(self) -> None:
        pass


class AiohttpResponse:
    """As much of a response as a middleware uses."""

    def __init__(self, script: Script, status: int, headers: dict[str, str]) -> None:
        self._script = script
        self.status = status
        self.headers = CIMultiDict(headers)

    async def read(self) -> bytes:
        self._script.closed += 1
        return b"said"


@dataclass
class AiohttpRequest:
    method: str
    body: Any
    url: Url = field(default_factory=lambda: Url(URL))
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)


@dataclass(frozen=True)
class Outcome:
    """What the caller of one call got."""

    status: int | None
    body: bytes = b""
    tries: Tries | None = None
    error: str = ""


Ask = tuple[str, bytes | Iterable[bytes] | None]


def play_httpx(script: Script, ask: Ask, **options: Any) -> Outcome:
    transport = PacedTransport(transport=Httpx(script), clock=script.clock, **options)
    with httpx.Client(transport=transport) as client:
        try:
            response = client.request(ask[0], URL, content=ask[1])
        except Exception as error:
            return Outcome(None, error=_kind(error))
        return Outcome(response.status_code, response.content, response.extensions["penstock"])


def play_httpx_async(script: Script, ask: Ask, **options: Any) -> Outcome:
    body = ask[1]
    if body is not None and not isinstance(body, bytes):
        body = _later(body)

    async def main() -> Outcome:
        transport = AsyncPacedTransport(transport=Httpx(script), clock=script.clock, **options)
        async with httpx.AsyncClient(transport=transport) as client:
            try:
                response = await client.request(ask[0], URL, content=body)
            except Exception as error:
                return Outcome(None, error=_kind(error))
            tries = response.extensions["penstock"]
            return Outcome(response.status_code, response.content, tries)

    return asyncio.run(main())


async def _later(body: Iterable[bytes]) -> Any:
    for part in body:
        yield part


def play_requests(script: Script, ask: Ask, **options: Any) -> Outcome:
    adapter = PacedAdapter(adapter=Requests(script), clock=script.clock, **options)
    with requests.Session() as session:
        session.trust_env = False
        session.mount("https://", adapter)
        try:
            response = session.request(ask[0], URL, data=ask[1])
        except Exception as error:
            return Outcome(None, error=_kind(error))
        tries = response.penstock  # type: ignore[attr-defined]  # the adapter puts it there
        return Outcome(response.status_code, response.content, tries)


def play_aiohttp(script: Script, ask: Ask, **options: Any) -> Outcome:
    body = ask[1]
    sent = aiohttp.BytesPayload(body) if isinstance(body, bytes) else body or b""

    async def handler(request: Any) -> Any:
        await asyncio.sleep(0)
        answer = script.next(body if isinstance(body, bytes) else b"".join(body or ()))
        if answer is None:
            raise aiohttp.ClientConnectionError("down")
        return AiohttpResponse(script, *answer)

    async def main() -> Outcome:
        middleware = PacedMiddleware(clock=script.clock, **options)
        request: Any = AiohttpRequest(ask[0], sent)
        try:
            response: Any = await middleware(request, handler)
        except Exception as error:
            return Outcome(None, error=_kind(error))
        return Outcome(response.status, await response.read(), response.penstock)

    return asyncio.run(main())


def _kind(error: Exception) -> str:
    for name in ("NotSent", "ConnectError"):
        if name in type(error).__name__.replace("ConnectionError", "ConnectError"):
            return name
    return type(error).__name__


Play = Callable[..., Outcome]
PLAYERS: dict[str, Play] = {
    "httpx": play_httpx,
    "httpx async": play_httpx_async,
    "requests": play_requests,
    "aiohttp": play_aiohttp,
}


def client(script: Script, *args: Any, **options: Any) -> httpx.AsyncClient:
    options = {"clock": script.clock, "chance": lambda: 0.5} | options
    return httpx.AsyncClient(
        transport=AsyncPacedTransport(*args, transport=Httpx(script), **options)
    )


def sync_client(script: Script, *args: Any, **options: Any) -> httpx.Client:
    options = {"clock": script.clock, "chance": lambda: 0.5} | options
    return httpx.Client(transport=PacedTransport(*args, transport=Httpx(script), **options))
