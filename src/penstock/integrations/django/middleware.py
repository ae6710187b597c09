"""PenstockMiddleware: limits for a whole site."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from penstock.errors import PenstockError
from penstock.integrations.deciding.applied_limits import APPLIED, AppliedLimits
from penstock.integrations.deciding.error_responses import answer_to
from penstock.integrations.deciding.responses import BOTH
from penstock.integrations.deciding.views import SITE_OPTIONS, Options
from penstock.integrations.deciding.waiting import finish, finish_async
from penstock.integrations.django.request import DjangoRequest
from penstock.integrations.django.settings import configured
from penstock.integrations.django.view_limit import (
    ERROR,
    DjangoLimit,
    carrier_of,
    limited,
    respond,
    wait,
)

GetResponse = Callable[[HttpRequest], Any]


class PenstockMiddleware:
    """Limits requests by ``settings.PENSTOCK``: the options of a `HttpCheckpoint`, and

    - ``fallback``: a view that answers instead of 429, such as from a cache
    - ``defer``, ``defer_body``: see `penstock.integrations.deciding.refusals`

    Put it behind ``AuthenticationMiddleware`` if limits are by user. Without a ``limit`` or a
    ``gate`` it limits nothing, and adds the headers of the limits of views to all responses. A
    view finds the `Outcome` in ``request.penstock``.
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
        self._view_limit = view_limit_of(self._asynchronous, options)

    def __call__(self, native: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        request = DjangoRequest(native)
        flow = limited(self._view_limit, self.get_response, self._asynchronous, request)
        return finish_async(flow) if self._asynchronous else finish(flow, wait)

    def process_exception(self, native: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer our errors, and remember others for ``count_when``."""
        setattr(native, ERROR, error)
        applied: AppliedLimits = carrier_of(native).get(APPLIED, [])
        answer = answer_to(error, applied, native.META.get("HTTP_ACCEPT", ""), self._fields)
        return None if answer is None else respond(answer)


def view_limit_of(asynchronous: bool, options: Options) -> DjangoLimit | None:
    """The limit of the site; None if these are only options for the limits of views."""
    if options.keys() <= set(SITE_OPTIONS):
        return None
    try:
        return DjangoLimit(asynchronous=asynchronous, site=True, **options)
    except (TypeError, ValueError, OSError, PenstockError) as error:
        raise ImproperlyConfigured(f"PENSTOCK: {error}") from error
