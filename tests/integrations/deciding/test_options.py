"""A wrong option is named with the right one, and with what the user wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flask
import pytest

from integrations.django.site import site  # settings come first
from penstock.integrations import asgi, django, fastapi, wsgi
from penstock.integrations import flask as flask_limits
from penstock.integrations import grpc as grpc_limits
from penstock.integrations.grpc import aio


def app(*args: Any) -> Any:
    raise NotImplementedError


def shop() -> Any:
    return flask.Flask("shop")


MAKERS: dict[str, Callable[..., Any]] = {
    "PenstockMiddleware": lambda **wrong: asgi.PenstockMiddleware(app, limit="1/minute", **wrong),
    "PenstockWSGI": lambda **wrong: wsgi.PenstockWSGI(app, limit="1/minute", **wrong),
    "ConcurrencyMiddleware": lambda **wrong: asgi.ConcurrencyMiddleware(app, 5, **wrong),
    "ConcurrencyWSGI": lambda **wrong: wsgi.ConcurrencyWSGI(app, 5, **wrong),
    "Penstock": lambda **wrong: flask_limits.Penstock(shop(), "1/minute", **wrong),
    "RateLimitInterceptor": lambda **wrong: grpc_limits.RateLimitInterceptor("1/minute", **wrong),
}
LIMITS: list[Callable[..., Any]] = [
    fastapi.limit,
    flask_limits.limit,
    flask_limits.Penstock(shop()).limit,
]


@pytest.mark.parametrize("name", MAKERS)
def test_a_wrong_option_is_named_with_the_right_one(name: str) -> None:
    with pytest.raises(TypeError) as raised:
        MAKERS[name](key_func=str)
    assert str(raised.value) == f"{name} has no option 'key_func': did you mean 'key'?"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("rate", "limit"), ("LIMIT", "limit"), ("Key", "key"), ("rules", "gate"), ("storage", "store"),
     ("skip", "exempt"), ("limits", "limit"), ("default_limits", "limit")],
)  # fmt: skip
def test_an_option_by_a_name_of_others(wrong: str, right: str) -> None:
    with pytest.raises(TypeError, match=f"has no option '{wrong}': did you mean '{right}'"):
        asgi.PenstockMiddleware(app, **{wrong: "1/minute"})


@pytest.mark.parametrize("limit", LIMITS)
def test_a_wrong_option_of_a_decorator(limit: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"^limit has no option 'key_func': did you mean 'key'"):
        limit("1/minute", key_func=str)


def test_a_wrong_option_in_django_and_in_grpc_aio() -> None:
    wrong: dict[str, Any] = {"key_func": str}
    with site([]), pytest.raises(TypeError, match=r"^limit has no option 'key_func': did you mean"):
        django.limit("1/minute", **wrong)
    with pytest.raises(TypeError, match=r"^RateLimitInterceptor has no option 'key_func'"):
        aio.RateLimitInterceptor("1/minute", **wrong)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("limits", "limit"), ("fall_back", "fallback"), ("websocket", "websocket_code")],
)
def test_options_of_its_own_are_suggested_too(wrong: str, right: str) -> None:
    with pytest.raises(TypeError, match=f"did you mean '{right}'"):
        asgi.PenstockMiddleware(app, **{wrong: "1/minute"})


def test_all_options_are_listed_where_none_is_close() -> None:
    options: dict[str, Any] = {"zzz": 1}
    with pytest.raises(TypeError, match="no option 'zzz'; it has by, enabled, exempt, forwarded"):
        asgi.ConcurrencyMiddleware(app, 5, **options)
