"""The handlers of the paths."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from penstock.rules.problems import nearest
from penstock.wires.http.messages import Handler, HttpRequest, HttpResponse, as_error


class Routes:
    """Handlers by path and method; itself a handler. HEAD is answered as GET."""

    def __init__(self, routes: Mapping[str, Mapping[str, Handler]]) -> None:
        self._routes = {path: dict(methods) for path, methods in routes.items()}
        for methods in self._routes.values():
            if "GET" in methods:
                methods.setdefault("HEAD", methods["GET"])

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        methods = self._routes.get(request.path)
        if methods is None:
            hint = nearest(request.path, self._routes)
            return as_error(404, f"nothing at {request.path:.200}{hint}")
        handler = methods.get(request.method) or methods.get("*")
        if handler is None:
            allowed = ", ".join(sorted(methods))
            error = f"{request.path} allows {allowed}, not {request.method:.20}"
            return as_error(405, error, [("Allow", allowed)])
        return handler(request)
