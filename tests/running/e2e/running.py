"""Real processes for the end-to-end tests: the service, gateways, and an application.

All run in folders of `stores.redis_server`'s guard, which ends them if pytest is killed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from stores.redis_server import _home, _reserve, wait_until

PATIENCE = 60.0  # a machine that does other things, too


_folders: list[Path] = []


def new_folder() -> Path:
    """For files; `remove_folders` takes it away."""
    _folders.append(Path(tempfile.mkdtemp(dir=_home(os.getpid()))))
    return _folders[-1]


def remove_folders() -> None:
    while _folders:
        shutil.rmtree(_folders.pop(), ignore_errors=True)


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """One that nobody else is given; whoever sets SO_REUSEADDR may listen on it."""
    port, held = _reserve(0, bus=False)
    try:
        yield port
    finally:
        for each in held:
            each.close()


class Running:
    """A process, and what it writes to stderr."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        # By which the guard knows it: it stays until the process has ended.
        self.folder = tempfile.mkdtemp(dir=_home(os.getpid()))
        self.lines: list[str] = []
        self._more = threading.Condition()
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            cwd=self.folder, env=env, start_new_session=True, text=True, errors="replace",
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._more:
                self.lines.append(line.rstrip("\n"))
                self._more.notify_all()
        with self._more:
            self._more.notify_all()

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def said(self, pattern: str, after: int = 0, patience: float = PATIENCE) -> re.Match[str]:
        """Wait for a line like this, from line ``after`` on."""
        matches: list[re.Match[str]] = []

        def look() -> bool:
            matches[:] = [m for line in self.lines[after:] if (m := re.search(pattern, line))]
            return bool(matches) or not self._reader.is_alive()

        with self._more:
            self._more.wait_for(look, patience)
            look()
        assert matches, f"it did not say {pattern!r}:\n{self.log}"
        return matches[0]

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """An error comes with what the process has said."""
        try:
            yield
        except Exception as error:
            error.add_note(self.log)
            raise

    def end(self, wait: float = PATIENCE) -> int:
        """SIGTERM, and SIGKILL if that does not help; the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(wait)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self.process.wait()
        self._reader.join(60)
        assert self.process.stderr is not None
        self.process.stderr.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        return code

    def kill(self) -> None:
        """It and all that it started: they are a session of their own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Penstock(Running):
    """``penstock serve`` on free ports, ready once `wait` returns."""

    def __init__(self, rules: str | Path | None, *options: str, **environment: str) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        if "PENSTOCK_PURE" in os.environ:
            env["PENSTOCK_PURE"] = os.environ["PENSTOCK_PURE"]
        given = [word for word in options if word.startswith("--")]
        places = [
            word
            for name in ("http", "grpc", "admin")
            if f"--{name}" not in given
            for word in (f"--{name}", "127.0.0.1:0")
        ]
        ruled = [] if rules is None else ["--rules", str(rules)]
        super().__init__(
            [sys.executable, "-m", "penstock", "serve", *ruled, *places, *options],
            env | environment,
        )
        self.http = self.grpc = self.admin = ""

    def wait(self) -> Penstock:
        try:
            self.said(r"ready after")
        except AssertionError:
            self.end()
            raise
        for name, words in (("http", "HTTP"), ("grpc", r"gRPC \(\w+\)"), ("admin", "admin API")):
            match = re.search(rf" {words} on (\S+)$", self.log, re.MULTILINE)
            if match:
                setattr(self, name, match.group(1))
        return self

    @property
    def workers(self) -> list[int]:
        """Their processes' ids, in no order."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        pids = [int(pid) for each in children for pid in each.read_text().split()]
        return [pid for pid in pids if b"worker_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def check(self, descriptor: Mapping[str, str], **more: Any) -> Answer:
        """One question over HTTP, on a connection of its own."""
        body = {"descriptors": [descriptor], **more}
        with self.telling():
            return ask(self.http, "/v1/check", "POST", json.dumps(body).encode())

    def told(self, path: str, method: str = "GET", **body: Any) -> Any:
        """What the admin API answers."""
        data = json.dumps(body).encode() if body else None
        with self.telling():
            answer = ask(self.admin, path, method, data, content_type="application/json")
        assert answer.status < 300, answer.body
        return json.loads(answer.body)

    def metrics(self) -> dict[str, float]:
        """``{'name{label="value"}': number}``"""
        text = ask(self.admin, "/metrics").body.decode()
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name: float(number) for name, _, number in lines}

    def values(self, name: str, **labels: str) -> list[float]:
        """Of all series of this name that have these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return [
            number
            for series, number in self.metrics().items()
            if series.partition("{")[0] == name and all(each in series for each in wanted)
        ]

    def counted(self, name: str, **labels: str) -> float:
        return sum(self.values(name, **labels))


# Asking -----------------------------------------------------------------------------------------


class Answer:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.body = answer.read()

    def __repr__(self) -> str:
        return f"{self.status} {dict(self.headers)} {self.body!r}"


def ask(
    where: str, path: str = "/", method: str = "GET", body: bytes | None = None, **headers: str
) -> Answer:
    """A request to ``"host:port"``, on a connection of its own."""
    host, _, port = where.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def statuses(where: str, count: int, path: str = "/", **headers: str) -> list[int]:
    return [ask(where, path, **headers).status for _ in range(count)]


def wait_for_port(running: Running, port: int) -> None:
    def open_() -> bool:
        assert running.process.poll() is None, running.log
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    wait_until(open_, f"somebody on port {port}: {running.log}", PATIENCE)


# An application ---------------------------------------------------------------------------------


class _App(BaseHTTPRequestHandler):
    """Tells what it was asked."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        received = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        echo = {"path": self.path, "headers": dict(self.headers), "sent": received.decode()}
        body = json.dumps(echo).encode()
        self.send_response(403 if self.path.startswith("/forbidden") else 200)
        self.send_header("X-App", "here")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A gateway that goes leaves its connections."""


@contextlib.contextmanager
def running_app() -> Iterator[int]:
    """Its port."""
    server = _Server(("127.0.0.1", 0), _App)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()
