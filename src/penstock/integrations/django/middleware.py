"""PenstockMiddleware: limits for a whole site."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from penstock.clock import WALL
from penstock.durations import SECOND
from penstock.errors import PenstockError
from penstock.integrations.deciding.http import BOTH
from penstock.integrations.deciding.pending import PENDING, Pending
from penstock.integrations.deciding.raised import answer_to
from penstock.integrations.deciding.views import OF_A_SITE, Options
from penstock.integrations.deciding.waiting import finish, finish_async
from penstock.integrations.django.request import DjangoRequest
from penstock.integrations.django.settings import configured
from penstock.integrations.django.view_limit import (
    ERROR,
    DjangoLimit,
    Turn,
    await_all,
    carrier_of,
    respond,
    wait,
    wait_for_all,
)  # fmt: skip

GetResponse = Callable[[HttpRequest], Any]


class PenstockMiddleware:
    """Limits requests by ``settings.PENSTOCK``: all that a `HttpCheckpoint` takes, and

    - ``fallback``: a view that answers instead of 429, such as from a cache
    - ``defer``, ``defer_body``: see `penstock.integrations.deciding.defer`

    Put it behind ``AuthenticationMiddleware`` if limits are by user. With neither a
    ``limit`` nor a ``gate`` it limits nothing, and tells of the limits of views, whatever
    these answer. A view finds the `Outcome` in ``request.penstock``.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        self._asynchronous: bool = iscoroutinefunction(get_response)
        if self._asynchronous:
            markcoroutinefunction(self)
        options = configured()
        self._fields = options.get("fields", BOTH)
        self._view_limit = _view_limit(self._asynchronous, options)

    def __call__(self, native: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._asynchronous:
            return self._call_async(native)
        turn = Turn(native)
        instead = None
        if self._view_limit is not None:
            instead = finish(
                self._view_limit.flow(DjangoRequest(native), turn.pending, native), wait
            )
        try:
            response: HttpResponseBase = self.get_response(native) if instead is None else instead
        except BaseException:  # Django makes an answer of every Exception
            wait_for_all(turn.abandoned())
            raise
        wait_for_all(turn.done(response))
        return response

    async def _call_async(self, native: HttpRequest) -> HttpResponseBase:
        turn = Turn(native)
        instead = None
        if self._view_limit is not None:
            flow = self._view_limit.flow(DjangoRequest(native), turn.pending, native)
            instead = await finish_async(flow)
        try:
            response: HttpResponseBase = (
                await self.get_response(native) if instead is None else instead
            )
        except BaseException:  # Django makes an answer of every Exception: it was cancelled
            await await_all(turn.abandoned())
            raise
        await await_all(turn.done(response))
        return response

    def process_exception(self, native: HttpRequest, error: Exception) -> HttpResponse | None:
        """Django asks whether we have an answer to it: to errors of ours; others we remember."""
        setattr(native, ERROR, error)
        pending: Pending = carrier_of(native).get(PENDING, [])
        accept, now = native.META.get("HTTP_ACCEPT", ""), WALL.now() / SECOND
        answer = answer_to(error, pending, accept, now, self._fields)
        return None if answer is None else respond(answer)


def _view_limit(asynchronous: bool, options: Options) -> DjangoLimit | None:
    if options.keys() <= set(OF_A_SITE):
        return None
    try:
        return DjangoLimit(asynchronous=asynchronous, **options)
    except (TypeError, ValueError, OSError, PenstockError) as error:
        raise ImproperlyConfigured(f"PENSTOCK: {error}") from error
