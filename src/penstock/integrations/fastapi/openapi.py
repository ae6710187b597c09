"""The OpenAPI document of a FastAPI application, with the responses of its limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI, routing

from penstock.integrations.asgi.limit import PenstockMiddleware
from penstock.integrations.asgi.route import dependencies_of, flat, mark_of_route
from penstock.integrations.deciding.environment import with_environment
from penstock.integrations.deciding.exempt import matcher
from penstock.integrations.deciding.marked_views import EXEMPT
from penstock.integrations.deciding.responses import JSON, PROBLEM
from penstock.integrations.fastapi.route_limit import RouteLimit

_NAME = "RateLimitExceeded"
_WAIT = {
    "type": ["integer", "null"],
    "description": "Seconds to wait; null if waiting does not help",
}
_SCHEMAS = {
    _NAME: {
        "title": _NAME,
        "type": "object",
        "properties": {"error": {"type": "string"}, "retry_after": _WAIT},
        "required": ["error", "retry_after"],
    },
    f"{_NAME}Problem": {
        "title": f"{_NAME}Problem",
        "description": "Problem details (RFC 9457)",
        "type": "object",
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "violated-policies": {"type": "array", "items": {"type": "string"}},
            "retry_after": _WAIT,
        },
        "required": ["type", "title", "status", "violated-policies", "retry_after"],
    },
}
# Those that are sent by default: ``fields`` is an option of each limit.
_HEADERS = {
    "Retry-After": ("Seconds to wait. Absent if waiting does not help", "integer"),
    "RateLimit-Policy": ("The limits: q units in w seconds each", "string"),
    "RateLimit": ("What is left of them: r units, and t seconds until the reset", "string"),
    "X-RateLimit-Limit": ("Of the strictest limit: how much may be taken at once", "integer"),
    "X-RateLimit-Remaining": ("Of the strictest limit: how much is left", "integer"),
    "X-RateLimit-Reset": ("Of the strictest limit: its reset, in seconds since 1970", "integer"),
}
RESPONSE = {
    "description": "Rate limit exceeded",
    "headers": {
        name: {"description": description, "schema": {"type": kind}}
        for name, (description, kind) in _HEADERS.items()
    },
    "content": {
        JSON: {"schema": {"$ref": f"#/components/schemas/{_NAME}"}},
        PROBLEM: {"schema": {"$ref": f"#/components/schemas/{_NAME}Problem"}},
    },
}


def document_limits(app: FastAPI) -> None:
    """Add the 429 to the OpenAPI document, for every route that has a limit.

    These are the routes with `limit`, as a decorator or a dependency. With a `PenstockMiddleware`
    they are all, but for those that are exempt. Limits that are switched off are shown, too: the
    document does not depend on where it is made. A route's own 429 stays. It may be called before
    the routes are added.
    """
    if not isinstance(app, FastAPI):
        raise TypeError(f"document_limits is for a FastAPI application, not {app!r:.100}")
    original = app.openapi

    def openapi() -> dict[str, Any]:
        document = original()
        operations = [
            operation
            for path, method in _limited(app)
            if (operation := document["paths"].get(path, {}).get(method)) is not None
        ]
        for operation in operations:
            operation.setdefault("responses", {}).setdefault("429", RESPONSE)
        if operations:
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for name, schema in _SCHEMAS.items():
                schemas.setdefault(name, schema)
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI documents it


def _limited(app: FastAPI) -> Iterator[tuple[str, str]]:
    """The paths and methods in the document that a limit applies to."""
    added: list[Any] = app.user_middleware
    middleware = [with_environment(m.kwargs) for m in added if m.cls is PenstockMiddleware]
    for route in flat(app.routes):
        if not isinstance(getattr(route, "original_route", route), routing.APIRoute):
            continue
        kind = mark_of_route(route)
        own = any(isinstance(each, RouteLimit) for each in dependencies_of(route.dependant))
        outer = kind is None and any(
            not _is_exempt(route.path_format, each.get("exempt", ())) for each in middleware
        )
        if kind != EXEMPT and (own or outer):
            for method in route.methods:
                yield route.path_format, method.lower()


def _is_exempt(template: str, exempt: Any) -> bool:
    """A function of the request may exempt some requests of any route."""
    return not callable(exempt) and matcher(list(exempt))(template)
