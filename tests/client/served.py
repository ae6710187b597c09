"""A real server with a limit: Starlette under uvicorn, in a thread, on a free port."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from client.hint_headers import headers
from penstock import Limiter


@dataclass
class Served:
    """Where it is, and what it has seen: when, whether it passed, over which connection."""

    url: str
    hits: list[tuple[float, bool]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: set[tuple[str, int]] = field(default_factory=set)

    def refused(self, after: float = 0.0) -> int:
        began = self.hits[0][0]
        return sum(not passed for when, passed in self.hits if when - began >= after)


@contextlib.contextmanager
def serving(limit: str) -> Iterator[Served]:
    """Everybody shares one limit; bodies of refusals are longer than one packet."""
    limiter = Limiter(limit)
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    served = Served(f"http://127.0.0.1:{listener.getsockname()[1]}/")

    async def answer(request: Request) -> Response:
        decision = limiter.hit("everybody")
        served.bodies.append(await request.body())
        served.hits.append((time.monotonic(), bool(decision)))
        assert request.client is not None
        served.connections.add((request.client.host, request.client.port))
        body = "welcome" if decision else "no " * 30_000
        return PlainTextResponse(body, 200 if decision else 429, headers(decision))

    app = Starlette(routes=[Route("/", answer, methods=["GET", "POST", "PUT"])])
    config = uvicorn.Config(
        app, http="h11", ws="none", lifespan="off", log_level="warning", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield served
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        listener.close()
