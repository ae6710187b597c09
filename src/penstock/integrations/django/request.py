"""Django's request as a `Request`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from django.http import HttpRequest
from django.urls import Resolver404, ResolverMatch, resolve

from penstock.integrations.deciding.identity import NOBODY_TRUSTED
from penstock.integrations.deciding.request import identity_of
from penstock.integrations.wsgi.request import WsgiRequest


class DjangoRequest(WsgiRequest):
    """``native`` is Django's request, or REST framework's.

    ``route`` is as in the URL patterns, after a slash: ``/users/<int:id>/``.
    """

    native: HttpRequest

    def __init__(self, native: HttpRequest, scope: str = "") -> None:
        self.native = native
        self.environ = native.META  # of ASGI requests, too
        self.method: str = native.method or "GET"
        self.path: str = native.path
        self.trust = NOBODY_TRUSTED
        self.scope = scope

    @property
    def cookies(self) -> Mapping[str, str]:
        """As the view reads them."""
        cookies: Mapping[str, str] = self.native.COOKIES
        return cookies

    @property
    def user(self) -> str | None:
        """Reads the session and the database."""
        return identity_of(getattr(self.native, "user", None))

    @property
    def route(self) -> str | None:
        return None if self.match is None else f"/{self.match.route}"

    @cached_property
    def match(self) -> ResolverMatch | None:
        match = self.native.resolver_match
        if match is None:  # a middleware runs before the router
            try:
                match = resolve(self.native.path_info, getattr(self.native, "urlconf", None))
            except Resolver404:
                return None
        return match
