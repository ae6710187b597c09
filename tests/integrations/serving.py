"""Real servers for tests, and a client that shows every byte."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn


@contextlib.contextmanager
def uvicorn_server(app: Any, **options: Any) -> Iterator[int]:
    """``app`` under uvicorn in a thread of its own; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Uvicorn believes X-Forwarded-For from this machine unless told otherwise.
        settings = {"lifespan": "off", "proxy_headers": False, "log_level": "error", **options}
        server = uvicorn.Server(uvicorn.Config(app, **settings))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.005)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(60)


@dataclass(frozen=True)
class Raw:
    """An answer as it was on the wire."""

    whole: bytes

    @property
    def head(self) -> bytes:
        return self.whole.partition(b"\r\n\r\n")[0]

    @property
    def body(self) -> bytes:
        return self.whole.partition(b"\r\n\r\n")[2]

    @property
    def status(self) -> int:
        return int(self.whole.split(b" ", 2)[1])

    def all(self, name: str) -> list[str]:
        lines = self.head.split(b"\r\n")[1:]
        pairs = [line.partition(b":") for line in lines]
        return [v.strip().decode() for n, _, v in pairs if n.lower() == name.lower().encode()]

    def header(self, name: str) -> str | None:
        found = self.all(name)
        assert len(found) <= 1, f"{name} came {len(found)} times"
        return found[0] if found else None


def ask(
    port: int,
    path: str = "/",
    method: str = "GET",
    headers: tuple[tuple[str, str], ...] = (),
    body: bytes = b"",
) -> Raw:
    """One request on a connection of its own, to the last byte of the answer."""
    lines = [f"{method} {path} HTTP/1.1", "Host: test", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    message = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(message)
        whole = b""
        while chunk := connection.recv(65536):
            whole += chunk
    return Raw(whole)
