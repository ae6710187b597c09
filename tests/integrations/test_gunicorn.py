"""Real gunicorn with four workers, which are processes: one file, one limit, exactly."""

from __future__ import annotations

import contextlib
import http.client
import re
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

WORKERS, LIMIT, REQUESTS, CLIENTS = 4, 100, 300, 6

# A view takes a moment, so that one worker cannot be quick enough to serve all clients alone.
FLASK = """
import os
import time
from flask import Flask
from penstock import SharedMemoryStore
from penstock.integrations.flask import Penstock, limit
from penstock.integrations.wsgi import PenstockWSGI

store = SharedMemoryStore("limits", max_keys=1_000)

def pid():
    time.sleep(0.002)
    return str(os.getpid())

def app(view):
    made = Flask("shop")
    made.add_url_rule("/<path:rest>", view_func=view)
    made.add_url_rule("/pid", endpoint="pid", view_func=pid)
    return made

by_view = app(limit("100/day", store=store)(lambda rest: pid()))
by_extension = app(lambda rest: pid())
Penstock(by_extension, "100/day", store=store)
by_middleware = PenstockWSGI(app(lambda rest: pid()), limit="100/day", store=store)
applications = {"/extension": by_extension, "/middleware": by_middleware}

def application(environ, start_response):
    chosen = applications.get(environ["PATH_INFO"], by_view)
    return chosen(environ, start_response)
"""

DJANGO = """
import os
import time
import django
from django.conf import settings

settings.configure(
    SECRET_KEY="only for tests", ALLOWED_HOSTS=["*"], ROOT_URLCONF="app", LOGGING_CONFIG=None,
    MIDDLEWARE=["penstock.integrations.django.PenstockMiddleware"],
    PENSTOCK={"limit": "100/day", "store": "store.store", "exempt": ["/pid"]},
)
django.setup()

from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.urls import path

def pid(request):
    time.sleep(0.002)
    return HttpResponse(str(os.getpid()))

urlpatterns = [path("", pid), path("pid", pid)]
application = WSGIHandler()
"""

STORE = """
from penstock import SharedMemoryStore

store = SharedMemoryStore("limits", max_keys=1_000)
"""


@contextlib.contextmanager
def gunicorn(folder: Path, *options: str) -> Iterator[int]:
    """``app:application`` of the folder, served by four workers; gives the port."""
    command = [
        sys.executable, "-m", "gunicorn", "--workers", str(WORKERS), "--bind", "127.0.0.1:0",
        "--worker-tmp-dir", str(folder), "--graceful-timeout", "1", *options, "app:application",
    ]  # fmt: skip
    server = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, bufsize=0)
    try:
        port = _port(server)
        _wait_for_all(port)
        yield port
    finally:
        server.terminate()
        try:
            server.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.communicate()


def _port(server: subprocess.Popen[bytes]) -> int:
    """As the log says."""
    log, until = b"", time.monotonic() + 60
    assert server.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(server.stderr, selectors.EVENT_READ)
        while time.monotonic() < until and b"Booting worker" not in log:
            if selector.select(timeout=0.1):
                chunk = server.stderr.read(4096)
                assert chunk, f"gunicorn ended: {log.decode()}"
                log += chunk
    found = re.search(rb"Listening at: http://127\.0\.0\.1:(\d+)", log)
    assert found, log.decode()
    return int(found[1])


def _wait_for_all(port: int) -> None:
    """Until every worker has answered."""
    seen: set[str] = set()
    until = time.monotonic() + 60
    with ThreadPoolExecutor(CLIENTS) as pool:
        while len(seen) < WORKERS:
            assert time.monotonic() < until, f"only {len(seen)} workers answer"
            seen.update(
                body for _, body, _ in pool.map(lambda _: ask(port, "/pid"), range(CLIENTS))
            )


def ask(port: int, path: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers["X-RateLimit-Remaining"]
    finally:
        connection.close()


def fire(port: int, path: str) -> None:
    """From several clients at once: exactly the limit passes, in more than one worker."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(lambda _: ask(port, path), range(REQUESTS)))
    assert Counter(status for status, _, _ in answers) == {200: LIMIT, 429: REQUESTS - LIMIT}
    served = [(body, int(left)) for status, body, left in answers if status == 200]
    assert len({body for body, _ in served}) > 1, "one worker did it all: nothing was shared"
    assert sorted(left for _, left in served) == list(range(LIMIT)), "no number was told twice"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "store.py").write_text(STORE)
    return tmp_path


def test_flask_obeys_one_limit(folder: Path) -> None:
    (folder / "app.py").write_text(FLASK)
    with gunicorn(folder) as port:
        for path in ("/view", "/extension", "/middleware"):
            fire(port, path)


def test_django_obeys_one_limit_also_in_threads_and_from_one_load(folder: Path) -> None:
    (folder / "app.py").write_text(DJANGO)
    with gunicorn(folder, "--preload", "--threads", "2") as port:
        fire(port, "/")
