"""The route's template of a request that has not been routed yet.

A middleware runs before the router. Where the application is Starlette's or FastAPI's, its
routes are asked: the same as the router will do. Others can set ``scope["route"]``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.integrations.asgi.request import Scope

# Numbers of starlette.routing.Match; taken by value, so as not to need Starlette.
_NONE, _PARTIAL, _FULL = 0, 1, 2


def route_of(scope: Scope) -> str | None:
    """Such as ``/users/{id}``; None if nothing matches, or nobody knows."""
    found = scope.get("route")
    if found is not None:
        return _template(found)
    app = scope.get("app")
    routes = getattr(app, "routes", None)
    if routes is None:
        return None
    return _search(routes, dict(scope), "")


def _search(routes: Iterable[Any], scope: dict[str, Any], above: str) -> str | None:
    partial: str | None = None
    for route in routes:
        matches = getattr(route, "matches", None)
        if matches is None:
            continue
        match, child = matches(scope)
        if match.value == _NONE:
            continue
        template = above + (_template(route) or "")
        inner = getattr(route, "routes", None)
        if inner:
            inner_template = _search(inner, {**scope, **child}, template)
            if inner_template is not None:
                return inner_template
            if getattr(route, "app", None) is not None:
                return template  # a mount of something that knows no routes below
            continue
        if match.value == _FULL:
            return template
        partial = partial or template  # the path matches, the method does not
    return partial


def _template(route: Any) -> str | None:
    """FastAPI and Starlette say ``path_format``; a mount has one that ends in its rest."""
    text = getattr(route, "path_format", None) or getattr(route, "path", None)
    if not isinstance(text, str):
        return None
    return text.removesuffix("/{path}") if hasattr(route, "routes") else text
