"""uvicorn, gunicorn and wsgiref behind the proxy: three ways to read a path and header fields.

All serve the same site: ``/health``, ``/static/...``, ``/api/...`` and a page for the rest. An
answer says which of them it is from, and what the server was told.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socketserver
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import flask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from proxy.proxy_parts import app_server

METHODS = ["GET", "POST", "OPTIONS"]
SERVERS = ("uvicorn", "gunicorn", "wsgiref")


def _asgi_site() -> Starlette:
    def view(name: str) -> Any:
        async def answer(request: Request) -> JSONResponse:
            body = (await request.body()).decode()
            told = dict(request.headers.items())
            path = request.scope["path"]
            return JSONResponse({"from": name, "path": path, "told": told, "body": body})

        return answer

    paths = {"health": "/health", "static": "/static/{rest:path}", "api": "/api/{rest:path}"}
    routes = [Route(path, view(name), methods=METHODS) for name, path in paths.items()]
    return Starlette(routes=[*routes, Route("/{rest:path}", view("page"), methods=METHODS)])


def wsgi_site() -> flask.Flask:
    site = flask.Flask("site", static_folder=None)

    def view(name: str) -> Any:
        def answer(rest: str = "") -> str:
            environ = flask.request.environ
            told = {
                k[5:].lower().replace("_", "-"): v for k, v in environ.items() if k[:5] == "HTTP_"
            }
            body = flask.request.get_data().decode()
            path = environ["SCRIPT_NAME"] + environ["PATH_INFO"]
            return json.dumps({"from": name, "path": path, "told": told, "body": body})

        return answer

    for name, path in [
        ("health", "/health"), ("static", "/static/<path:rest>"), ("api", "/api/<path:rest>"),
        ("page", "/"), ("page", "/<path:rest>"),
    ]:  # fmt: skip
        made = view(name)
        site.add_url_rule(
            path, f"{name} {path}", made, methods=METHODS, provide_automatic_options=False
        )
    return site


class _Threads(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *about: Any) -> None:
        pass


@contextlib.asynccontextmanager
async def _wsgiref() -> AsyncIterator[int]:
    server = make_server("127.0.0.1", 0, wsgi_site(), _Threads, _Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.asynccontextmanager
async def _gunicorn() -> AsyncIterator[int]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gunicorn", "proxy.real_servers:wsgi_site()", "-b", "127.0.0.1:0"),
        *("-w", "1", "-k", "gthread", "--threads", "4", "--no-control-socket"),
        cwd=Path(__file__).parents[1],
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        port = 0
        while not port:
            line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
            assert line, "gunicorn did not start"
            if "Listening at: http://127.0.0.1:" in line:
                port = int(line.partition("127.0.0.1:")[2].partition(" ")[0])
        yield port
    finally:
        process.terminate()
        await process.communicate()


@contextlib.asynccontextmanager
async def real_server(name: str) -> AsyncIterator[int]:
    """Its port."""
    if name == "uvicorn":
        made: Any = app_server(_asgi_site(), http="httptools", proxy_headers=False)
    else:
        made = _gunicorn() if name == "gunicorn" else _wsgiref()
    async with made as port:
        yield port
