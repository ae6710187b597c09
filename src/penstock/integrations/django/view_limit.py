"""A limit before Django's views, and who tells of it."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, MutableMapping
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.core.exceptions import (
    BadRequest,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    SynchronousOnlyOperation,
)
from django.http import Http404, HttpRequest, HttpResponse, RawPostDataException
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase

from penstock.integrations.deciding.defer import Deferred
from penstock.integrations.deciding.http import NAMES, Answer, Header
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.pending import PENDING, Pending, Settling, abandoned, fields_of
from penstock.integrations.deciding.request import Request, Response
from penstock.integrations.deciding.views import ViewLimit
from penstock.integrations.deciding.waiting import Flow, awaited
from penstock.integrations.wsgi.client import WATCHED, WatchedInput, client_absent, promised
from penstock.integrations.wsgi.request import headers_of

# On Django's request: what a view raised and nobody caught.
ERROR = "_penstock_error"


class DjangoLimit(ViewLimit):
    """A limit, wherever it stands."""

    def __init__(self, *, asynchronous: bool, **options: Any) -> None:
        super().__init__(asynchronous=asynchronous, **options)
        self._asynchronous = asynchronous
        if asynchronous and self.fallback is not None and not iscoroutinefunction(self.fallback):
            self.fallback = sync_to_async(self.fallback)

    def decide(self, request: Request) -> Flow[Outcome | None]:
        """Where there is an event loop, Django's user cannot be had without awaiting it."""
        try:
            return (yield from self.checkpoint.flow(request))
        except SynchronousOnlyOperation:
            native = request.native
            if not self._asynchronous or not hasattr(native, "auser"):
                raise
        # Nothing was counted: a key is asked for before anything else happens.
        native.user = yield native.auser()
        return (yield from self.checkpoint.flow(request))

    def note(self, request: Request, outcome: Outcome) -> None:
        request.native.penstock = outcome

    def watch(self, request: Request) -> None:
        """Django has taken the body's stream out of the environ already.

        In ASGI it has read the body, and cancels a view whose client leaves.
        """
        native = request.native
        stream = getattr(native, "_stream", None)
        started = getattr(native, "_read_started", True)
        if hasattr(native, "scope") or stream is None or started or WATCHED in native.META:
            return
        watched = WatchedInput(stream, promised(native.META))
        native._stream = native.META[WATCHED] = watched

    def respond(self, answer: Answer) -> HttpResponse:
        return respond(answer)

    def mark(self, response: Any, header: Header) -> Any:
        if isinstance(response, HttpResponseBase):
            response.headers[header[0]] = header[1]
        return response

    def keep(self, request: Request) -> Deferred | None:
        native: HttpRequest = request.native
        length = native.META.get("CONTENT_LENGTH") or ""
        asgi = hasattr(native, "scope")
        if length.isdecimal() and int(length) > self.defer_body:
            return None
        if not length and not asgi and "HTTP_TRANSFER_ENCODING" in native.META:
            return None  # chunked: Django does not read it
        try:
            body = native.body
        except (RequestDataTooBig, RawPostDataException):
            return None
        if len(body) > self.defer_body:
            return None
        query, headers = native.META.get("QUERY_STRING", ""), headers_of(native.META)
        return Deferred(request.method, request.path, query, headers, body, request.client)

    def refuse(self, answer: Answer, outcome: Outcome) -> HttpResponse:
        return self.respond(answer)


class Turn:
    """What one of us does for a request. The outermost tells of all, and settles."""

    def __init__(self, native: HttpRequest) -> None:
        self._native = native
        self._carrier = carrier_of(native)
        pending: Pending | None = self._carrier.get(PENDING)
        self._outermost = pending is None
        self.pending: Pending = [] if pending is None else pending
        if pending is None:
            self._carrier[PENDING] = self.pending

    def done(self, response: Any) -> list[Awaitable[Any]]:
        """Returns what has to be awaited."""
        if not self._leave() or not isinstance(response, HttpResponseBase):
            return []
        for name in NAMES if self.pending else ():
            del response[name]
        for name, value in fields_of(self.pending):
            response[name] = value
        settling = Settling(self.pending)
        if not settling.wanted:
            return []
        error = getattr(self._native, ERROR, None) if response.status_code >= 500 else None
        headers = {name.lower(): value for name, value in response.items()}
        return settling.settle(Response(response.status_code, headers, error), self._absent())

    def failed(self, error: Exception) -> list[Awaitable[Any]]:
        """Returns what has to be awaited."""
        if not self._leave():
            return []
        return Settling(self.pending).settle(_answered(error), self._absent())

    def abandoned(self) -> list[Awaitable[Any]]:
        """It was cancelled. Returns what has to be awaited."""
        return abandoned(self.pending) if self._leave() else []

    def _absent(self) -> bool:
        return client_absent(self._native.META)

    def _leave(self) -> bool:
        if self._outermost:
            self._carrier.pop(PENDING, None)
        return self._outermost


def carrier_of(native: HttpRequest) -> MutableMapping[str, Any]:
    """Where the list is: another of us may be outside of Django, and have made it already."""
    scope: MutableMapping[str, Any] | None = getattr(native, "scope", None)
    carrier: MutableMapping[str, Any] = native.META if scope is None else scope
    return carrier


def respond(answer: Answer) -> HttpResponse:
    return HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))


def _answered(error: Exception) -> Response:
    """What Django will make of it."""
    if isinstance(error, Http404):
        return Response(404, {})
    if isinstance(error, PermissionDenied):
        return Response(403, {})
    if isinstance(error, (BadRequest, SuspiciousOperation, MultiPartParserError)):
        return Response(400, {})
    return Response(500, {}, error)


def wait(waiting: Awaitable[Any]) -> Any:
    """In a thread, for a coroutine."""
    return async_to_sync(awaited)(waiting)


def wait_for_all(waiting: Iterable[Awaitable[Any]]) -> None:
    for each in waiting:
        wait(each)


async def await_all(waiting: Iterable[Awaitable[Any]]) -> None:
    for each in waiting:
        await each
