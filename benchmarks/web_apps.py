"""Hello-world applications, bare and limited, by name. Every request passes; all tell headers.

``python -m benchmarks.web_apps NAME`` serves one on a free port, which it prints.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

MUCH = 1_000_000  # a second: nobody is refused, so that the handler always runs
RULES = f"""
domain: web
descriptors:
  - key: remote_address
    limits: {MUCH}/second
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        limits: 5/minute
"""


# Starlette --------------------------------------------------------------------------------


def starlette(*middleware: Any) -> Any:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def hello(request: Any) -> PlainTextResponse:
        return PlainTextResponse("hello")

    return Starlette(routes=[Route("/", hello)], middleware=list(middleware))


def starlette_penstock() -> Any:
    from starlette.middleware import Middleware

    from penstock.integrations.asgi import PenstockMiddleware

    return starlette(Middleware(PenstockMiddleware, limit=f"{MUCH}/second"))


def starlette_without_fields() -> Any:
    from starlette.middleware import Middleware

    from penstock.integrations.asgi import PenstockMiddleware

    return starlette(Middleware(PenstockMiddleware, limit=f"{MUCH}/second", fields="none"))


class FixedFields:
    """No limiter at all: five headers that never change. Nobody who tells them costs less."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        def tell(message: Any) -> Any:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *FIXED]}
            return send(message)

        await self._app(scope, receive, tell)


FIXED = [
    (b"ratelimit-policy", b'"default";q=1000000;w=1'),
    (b"ratelimit", b'"default";r=999999;t=1'),
    (b"x-ratelimit-limit", b"1000000"),
    (b"x-ratelimit-remaining", b"999999"),
    (b"x-ratelimit-reset", b"1767225600"),
]


def starlette_fixed() -> Any:
    from starlette.middleware import Middleware

    return starlette(Middleware(FixedFields))


def starlette_rules() -> Any:
    from starlette.middleware import Middleware

    from penstock import AsyncGate
    from penstock.integrations.asgi import PenstockMiddleware

    return starlette(Middleware(PenstockMiddleware, gate=AsyncGate.from_rules(RULES)))


def starlette_slowapi() -> Any:
    from slowapi import Limiter
    from slowapi.middleware import SlowAPIASGIMiddleware
    from slowapi.util import get_remote_address
    from starlette.middleware import Middleware

    app = starlette(Middleware(SlowAPIASGIMiddleware))
    limits: Any = [f"{MUCH}/second"]
    app.state.limiter = Limiter(get_remote_address, default_limits=limits, headers_enabled=True)
    return app


# FastAPI ----------------------------------------------------------------------------------


def fastapi(*dependencies: Any) -> Any:
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/", dependencies=list(dependencies))
    async def hello() -> str:
        return "hello"

    return app


def fastapi_penstock() -> Any:
    from fastapi import Depends

    from penstock.integrations.fastapi import limit

    return fastapi(Depends(limit(f"{MUCH}/second")))


def fastapi_limiter() -> Any:
    from fastapi import Depends
    from fastapi_limiter.depends import RateLimiter
    from pyrate_limiter import Duration, Limiter, Rate

    return fastapi(Depends(RateLimiter(Limiter(Rate(MUCH, Duration.SECOND)))))


# Flask ------------------------------------------------------------------------------------


def flask() -> Any:
    from flask import Flask

    app = Flask("hello")

    @app.get("/")
    def hello() -> str:
        return "hello"

    return app


def flask_penstock() -> Any:
    from penstock.integrations.wsgi import PenstockWSGI

    app = flask()
    app.wsgi_app = PenstockWSGI(app.wsgi_app, limit=f"{MUCH}/second")
    return app


def flask_extension() -> Any:
    from penstock.integrations.flask import Penstock

    app = flask()
    Penstock(app, limit=f"{MUCH}/second")
    return app


def flask_limiter() -> Any:
    from flask_limiter import Limiter
    from flask_limiter.util import get_remote_address

    app = flask()
    limits: Any = [f"{MUCH}/second"]
    Limiter(
        get_remote_address, app=app, default_limits=limits, headers_enabled=True,
        storage_uri="memory://",
    )  # fmt: skip
    return app


# By family: the bare application first.
FAMILIES: dict[str, dict[str, Callable[[], Any]]] = {
    "Starlette": {
        "bare": starlette,
        "five fixed headers, no limiter": starlette_fixed,
        "Penstock, no headers": starlette_without_fields,
        "Penstock": starlette_penstock,
        "Penstock, rules": starlette_rules,
        "slowapi": starlette_slowapi,
    },
    "FastAPI": {
        "bare": fastapi,
        "Penstock": fastapi_penstock,
        "fastapi-limiter (no headers)": fastapi_limiter,
    },
    "Flask": {
        "bare": flask,
        "Penstock": flask_penstock,
        "Penstock, extension": flask_extension,
        "Flask-Limiter": flask_limiter,
    },
}


def serve(family: str, name: str) -> None:
    app = FAMILIES[family][name]()
    if family == "Flask":
        from gunicorn.app.base import BaseApplication

        class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
            def load_config(self) -> None:
                told = {
                    "bind": "127.0.0.1:0", "worker_class": "gthread", "threads": 1,
                    "keepalive": 60, "loglevel": "error", "worker_tmp_dir": tempfile.gettempdir(),
                    "when_ready": lambda server: announce(server.LISTENERS[0].sock),
                    "control_socket_disable": True,
                }  # fmt: skip
                for key, value in told.items():
                    if key in self.cfg.settings:
                        self.cfg.set(key, value)

            def load(self) -> Any:
                return app

        Server().run()
        return
    import socket

    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="error", access_log=False, proxy_headers=False)
        announce(listener)
        uvicorn.Server(config).run([listener])


def announce(listener: Any) -> None:
    print(listener.getsockname()[1], flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    serve(sys.argv[1], sys.argv[2])
