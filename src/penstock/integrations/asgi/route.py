"""The route of a request that may not have been routed yet.

A middleware runs before the router. With Starlette and FastAPI, the application's routes are
matched as the router will do. Others can set ``scope["route"]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from penstock.integrations.asgi.types import Scope
from penstock.integrations.deciding.marked_views import mark_of

# Numbers of starlette.routing.Match; copied, so as not to need Starlette.
_NONE, _PARTIAL, _FULL = 0, 1, 2


class RouteMatch(NamedTuple):
    """A route, and the template of its path with those of the mounts above it.

    ``full``: not only the path matches, but the method, too.
    """

    route: Any
    template: str | None
    full: bool


def route_of(scope: Scope) -> str | None:
    """Such as ``/users/{id}``; None if nothing matches, or there are no routes."""
    match = _find(scope)
    return None if match is None else match.template


def view_route_of(scope: Scope) -> Any:
    """The route whose view will be called; None if there is none."""
    match = _find(scope)
    return match.route if match is not None and match.full else None


def _find(scope: Scope) -> RouteMatch | None:
    route = scope.get("route")
    if route is not None:
        # Of a router that FastAPI includes in several places, the route in this place.
        included = scope.get("fastapi", {}).get("effective_route_context")
        if getattr(included, "original_route", None) is route:
            route = included
        return RouteMatch(route, _template(route), True)
    routes = getattr(scope.get("app"), "routes", None)
    return None if routes is None else _search(routes, dict(scope), "")


def mark_of_route(route: Any) -> str | None:
    """The mark of the route's view, or of a limit among FastAPI's dependencies of it."""
    mark = mark_of(getattr(route, "endpoint", None))
    if mark is None:
        marks = (mark_of(each) for each in dependencies_of(getattr(route, "dependant", None)))
        mark = next(filter(None, marks), None)
    return mark


def dependencies_of(dependant: Any) -> Iterator[Any]:
    """All that FastAPI calls for a route, in its order: from the application's to the handler's."""
    for inner in () if dependant is None else dependant.dependencies:
        yield inner.call
        yield from dependencies_of(inner)


def _search(routes: Iterable[Any], scope: dict[str, Any], above: str) -> RouteMatch | None:
    partial: RouteMatch | None = None
    for route in flat(routes):
        matches = getattr(route, "matches", None)
        if matches is None:
            continue
        match, child = matches(scope)
        if match.value == _NONE:
            continue
        template = above + (_template(route) or "")
        inner = getattr(route, "routes", None)
        if inner:
            below = _search(inner, {**scope, **child}, template)
            if below is not None:
                return below
            if getattr(route, "app", None) is not None:
                # A mount of something that has no routes of its own.
                return RouteMatch(route, template, True)
            continue
        if match.value == _FULL:
            return RouteMatch(route, template, True)
        # The path matches, but the method does not.
        partial = partial or RouteMatch(route, template, False)
    return partial


def flat(routes: Iterable[Any]) -> Iterator[Any]:
    """FastAPI keeps an included router as one route, with its own routes inside."""
    for route in routes:
        contexts = getattr(route, "effective_route_contexts", None)
        if contexts is None:
            yield route
        else:
            for context in contexts():
                yield context.starlette_route or context


def _template(route: Any) -> str | None:
    """FastAPI and Starlette have ``path_format``; that of a mount ends in ``/{path}``."""
    text = getattr(route, "path_format", None) or getattr(route, "path", None)
    if not isinstance(text, str):
        return None
    return text.removesuffix("/{path}") if hasattr(route, "routes") else text
