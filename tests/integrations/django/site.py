"""A Django site for the tests of Django and REST framework: its settings, made once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import clear_url_caches

from penstock import MemoryStore
from penstock.integrations import Request

MIDDLEWARE = "penstock.integrations.django.PenstockMiddleware"
LOG_IN = (
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
)

REST: dict[str, Any] = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "UNAUTHENTICATED_USER": None,
}

if not settings.configured:
    settings.configure(
        SECRET_KEY="only for tests",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="integrations.django.site",
        INSTALLED_APPS=[
            "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
        ],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "never-made"}},
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        REST_FRAMEWORK=REST,
        USE_TZ=True,
        LOGGING_CONFIG=None,
    )  # fmt: skip
    django.setup()

urlpatterns: list[Any] = []


@contextlib.contextmanager
def site(
    urls: Sequence[Any], options: Any = None, before: Sequence[str] = (), **more: Any
) -> Iterator[None]:
    """These URLs, and the middleware if there are options for it."""
    middleware = [*before, MIDDLEWARE] if options is not None else [*before]
    urlpatterns[:] = urls
    with override_settings(MIDDLEWARE=middleware, PENSTOCK=options, **more):
        clear_url_caches()  # the resolver keeps what it saw
        yield


@contextlib.contextmanager
def database(folder: Path) -> Iterator[list[Any]]:
    """A database of users and sessions, in a file; gives two users."""
    connections["default"].settings_dict["NAME"] = str(folder / "users.sqlite3")
    call_command("migrate", verbosity=0)
    try:
        create = get_user_model().objects.create_user
        yield [create(name) for name in ("ada", "bob")]
    finally:
        connections.close_all()
        asyncio.run(sync_to_async(connections.close_all)())  # of the thread that coroutines use


def hello(request: HttpRequest, **arguments: Any) -> HttpResponse:
    return HttpResponse("hello")


async def hello_async(request: HttpRequest, **arguments: Any) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse("hello")


def view_of(asynchronous: bool) -> Any:
    return hello_async if asynchronous else hello


class Asker:
    """One client for both kinds of handlers."""

    def __init__(self, asynchronous: bool, **options: Any) -> None:
        self._asynchronous = asynchronous
        self.client: Any = AsyncClient(**options) if asynchronous else Client(**options)

    def ask(self, path: str = "/", method: str = "get", **options: Any) -> Any:
        answer = getattr(self.client, method)(path, **options)
        return asyncio.run(answer) if self._asynchronous else answer

    def statuses(self, *paths: str, **options: Any) -> list[int]:
        return [self.ask(path, **options).status_code for path in paths]


# What settings name ----------------------------------------------------------------------------


def key_by_name(request: Request) -> str:
    return "everybody"


def limit_by_name(request: Request) -> str:
    return "2/minute"


def make_store() -> MemoryStore:
    return MemoryStore()


def cached(request: HttpRequest) -> HttpResponse:
    return HttpResponse("from a cache")


THE_STORE = MemoryStore()
