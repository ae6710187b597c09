"""Django's request as a `Request`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from django.http import HttpRequest
from django.urls import Resolver404, resolve

from penstock.integrations.deciding.identity import NOBODY_TRUSTED
from penstock.integrations.deciding.request import Request, identity_of


class DjangoRequest(Request):
    """``native`` is Django's request, or REST framework's.

    ``route`` is as in the URL patterns, with the slash that these leave away:
    ``/users/<int:id>/``.
    """

    native: HttpRequest

    def __init__(self, native: HttpRequest, scope: str = "") -> None:
        self.native = native
        self.method: str = native.method or "GET"
        self.path: str = native.path
        self.trust = NOBODY_TRUSTED
        self.scope = scope

    @property
    def peer(self) -> str | None:
        return self.native.META.get("REMOTE_ADDR") or None

    def header(self, name: str) -> str | None:
        key = name.upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = "HTTP_" + key
        value: str | None = self.native.META.get(key)
        return value

    @property
    def cookies(self) -> Mapping[str, str]:
        """As the view reads them."""
        found: Mapping[str, str] = self.native.COOKIES
        return found

    @property
    def user(self) -> str | None:
        """Asks for the session, and the database: only if somebody wants to know."""
        return identity_of(getattr(self.native, "user", None))

    @cached_property
    def route(self) -> str | None:
        match = self.native.resolver_match
        if match is None:  # a middleware runs before the router
            try:
                match = resolve(self.native.path_info, getattr(self.native, "urlconf", None))
            except Resolver404:
                return None
        return f"/{match.route}"
