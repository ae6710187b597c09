"""A limit before Django's views, and the headers of their responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
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
from django.urls import get_resolver

from penstock.integrations.deciding.applied_limits import (
    APPLIED,
    AppliedLimits,
    fields_of,
    keep_counted,
    release,
    settle,
    settles,
)
from penstock.integrations.deciding.marked_views import some_are_marked
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.refusals import Deferred
from penstock.integrations.deciding.request import Request, Response
from penstock.integrations.deciding.responses import NAMES, Answer, Header
from penstock.integrations.deciding.views import ViewLimit
from penstock.integrations.deciding.waiting import Flow, all_of, awaited
from penstock.integrations.django.counts import CHECKPOINTS
from penstock.integrations.django.request import DjangoRequest
from penstock.integrations.wsgi.disconnects import (
    WATCHED,
    WatchedInput,
    client_absent,
    content_length,
)

# On Django's request: an exception that nobody caught.
ERROR = "_penstock_error"


class DjangoLimit(ViewLimit):
    """A limit of a site or a view."""

    def __init__(self, *, asynchronous: bool, **options: Any) -> None:
        super().__init__(asynchronous=asynchronous, **options)
        self._asynchronous = asynchronous
        CHECKPOINTS.add(self.checkpoint)
        fallback = self.refusals.fallback
        if asynchronous and fallback is not None and not iscoroutinefunction(fallback):
            self.refusals.fallback = sync_to_async(fallback)

    def decide(self, request: Request, exempt: bool) -> Flow[Outcome | None]:
        """In an event loop, Django's user has to be awaited."""
        try:
            return (yield from self.checkpoint.flow(request, exempt))
        except SynchronousOnlyOperation:
            native = request.native
            if not self._asynchronous or not hasattr(native, "auser"):
                raise
        # Nothing was counted yet: the key comes first.
        native.user = yield native.auser()
        return (yield from self.checkpoint.flow(request, exempt))

    def view_of(self, request: Request) -> Any:
        assert isinstance(request, DjangoRequest)
        # Views are marked when their module is imported, which the URL patterns do.
        _ = get_resolver(getattr(request.native, "urlconf", None)).url_patterns
        match = request.match if some_are_marked() else None
        return None if match is None else match.func

    def note(self, request: Request, outcome: Outcome) -> None:
        request.native.penstock = outcome

    def watch(self, request: Request) -> None:
        """Django keeps the body's stream itself, and not in the environ.

        In ASGI it has read the body, and cancels a view whose client leaves.
        """
        native = request.native
        stream = getattr(native, "_stream", None)
        started = getattr(native, "_read_started", True)
        if hasattr(native, "scope") or stream is None or started or WATCHED in native.META:
            return
        watched = WatchedInput(stream, content_length(native.META))
        native._stream = native.META[WATCHED] = watched

    def mark(self, response: Any, header: Header) -> Any:
        if isinstance(response, HttpResponseBase):
            response.headers[header[0]] = header[1]
        return response

    def read(self, request: DjangoRequest, longest: int) -> Deferred | None:
        native = request.native
        length = native.META.get("CONTENT_LENGTH") or ""
        if length.isdecimal() and int(length) > longest:
            return None
        if not length and not hasattr(native, "scope") and "HTTP_TRANSFER_ENCODING" in native.META:
            return None  # chunked: Django does not read it
        try:
            body = native.body
        except (RequestDataTooBig, RawPostDataException):
            return None
        return request.deferred(body) if len(body) <= longest else None

    def refuse(self, answer: Answer, outcome: Outcome) -> HttpResponse:
        return respond(answer)


def limited(
    view_limit: DjangoLimit | None,
    call: Callable[..., Any],
    asynchronous: bool,
    request: DjangoRequest,
    /,
    *args: Any,
    **kwargs: Any,
) -> Flow[Any]:
    """The response: of ``call``, unless the limit refuses.

    The outermost one of a request adds the headers of all limits, and settles.
    """
    native = request.native
    carrier = carrier_of(native)
    outermost = APPLIED not in carrier
    applied: AppliedLimits = carrier.setdefault(APPLIED, [])
    response = None
    try:
        if view_limit is not None:
            response = yield from view_limit.flow(request, applied, native, *args, **kwargs)
        if response is None:
            response = call(native, *args, **kwargs)
            if asynchronous:
                response = yield response
    except BaseException as error:
        if outermost:
            del carrier[APPLIED]
            if isinstance(error, Exception):
                response = _response_to(error)
                yield from all_of(settle(applied, response, client_absent(native.META)))
            else:  # it was cancelled
                yield from all_of(keep_counted(applied))
            yield from all_of(release(applied))
        raise
    if outermost:
        del carrier[APPLIED]
        yield from all_of(_add_headers(response, native, applied))
        yield from all_of(release(applied))
    return response


def _add_headers(
    response: Any, native: HttpRequest, applied: AppliedLimits
) -> list[Awaitable[Any]]:
    """Returns what has to be awaited to settle."""
    if not applied or not isinstance(response, HttpResponseBase):
        return []
    for name in NAMES:
        del response[name]
    for name, value in fields_of(applied):
        response[name] = value
    if not settles(applied):
        return []
    error = getattr(native, ERROR, None) if response.status_code >= 500 else None
    headers = {name.lower(): value for name, value in response.items()}
    answered = Response(response.status_code, headers, error)
    return settle(applied, answered, client_absent(native.META))


def carrier_of(native: HttpRequest) -> MutableMapping[str, Any]:
    """Where the list of limits is: that of a middleware outside Django, too."""
    scope: MutableMapping[str, Any] | None = getattr(native, "scope", None)
    return native.META if scope is None else scope


def respond(answer: Answer) -> HttpResponse:
    return HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))


def _response_to(error: Exception) -> Response:
    """The response that Django will make."""
    if isinstance(error, Http404):
        return Response(404, {})
    if isinstance(error, PermissionDenied):
        return Response(403, {})
    if isinstance(error, (BadRequest, SuspiciousOperation, MultiPartParserError)):
        return Response(400, {})
    return Response(500, {}, error)


def wait(waiting: Awaitable[Any]) -> Any:
    """Wait for a coroutine in a thread."""
    return async_to_sync(awaited)(waiting)
