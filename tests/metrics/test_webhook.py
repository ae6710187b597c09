"""Events that leave by HTTP, to a real server."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from penstock.metrics import RefusalsJumped, RefusalsSettled, Webhook
from penstock.metrics.webhook import MOST_WAITING, PAUSE, body_of, post_json
from penstock.testing import FakeClock

JUMP = RefusalsJumped("refusals", "api/user", 412.0, 20.5, 4.5, 10)


@contextmanager
def receiver(*statuses: int) -> Iterator[tuple[str, list[Any]]]:
    """Answers by these in turn, and by the last from then on."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = statuses[min(len(got), len(statuses) - 1)]
            got.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:  # where a redirect would lead
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook?token=s3cret", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def outcomes(webhook: Webhook) -> dict[str, Any]:
    counts = webhook.snapshot().values["penstock_webhooks_total"]
    return {outcome: value for (outcome,), value in counts.items() if value}


@pytest.mark.parametrize(
    ("statuses", "posts", "outcome"),
    [
        ((200,), 1, {"sent": 1}),
        ((204,), 1, {"sent": 1}),
        ((500, 200), 2, {"sent": 1}),
        ((500,), 2, {"failed": 1}),
        ((404,), 2, {"failed": 1}),
        ((302,), 2, {"failed": 1}),
    ],
)
def test_it_tries_twice(statuses: tuple[int, ...], posts: int, outcome: dict[str, int]) -> None:
    clock = FakeClock()
    started = clock.now()
    with receiver(*statuses) as (url, got):
        webhook = Webhook(url, clock=clock)
        webhook.start()
        try:
            webhook(JUMP)
            until(lambda: bool(outcomes(webhook)))
        finally:
            webhook.close()
    assert outcomes(webhook) == outcome
    assert len(got) == posts
    assert clock.now() - started == (posts - 1) * PAUSE * 1e9
    assert got[0] == (
        "/hook?token=s3cret",
        "application/json",
        {"event": "RefusalsJumped", "rule": "api/user", "count": 412.0, "expected": 20.5,
         "sigma": 4.5, "window": 10},
    )  # fmt: skip


def test_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    with receiver(200) as (url, _):
        pass
    webhook = Webhook(url, clock=FakeClock())
    webhook.start()
    with caplog.at_level(logging.WARNING, "penstock.metrics"):
        webhook(JUMP)
        until(lambda: bool(outcomes(webhook)))
        webhook.close()
    assert outcomes(webhook) == {"failed": 1}
    assert "127.0.0.1" in caplog.text
    assert "s3cret" not in caplog.text


def test_an_error_that_holds_the_address_does_not_tell_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def post(url: str, body: bytes, seconds: float) -> None:
        raise RuntimeError(f"cannot reach {url}")

    webhook = Webhook("http://example.org/s3cret", post=post, clock=FakeClock())
    webhook.start()
    with caplog.at_level(logging.WARNING, "penstock.metrics"):
        webhook(JUMP)
        until(lambda: bool(outcomes(webhook)))
        webhook.close()
    assert "s3cret" not in caplog.text


def test_a_slow_receiver_delays_nobody() -> None:
    held, begun = threading.Event(), threading.Event()

    def post(url: str, body: bytes, seconds: float) -> None:
        begun.set()
        held.wait(60)

    webhook = Webhook("http://example.org/", post=post, clock=FakeClock())
    webhook.start()
    webhook(JUMP)
    assert begun.wait(60)
    for _ in range(MOST_WAITING + 5):
        webhook(JUMP)
    assert outcomes(webhook) == {"dropped": 5}
    held.set()
    webhook.close()
    assert outcomes(webhook)["dropped"] == 5


def test_it_stops_and_starts_again() -> None:
    before = threading.active_count()
    with receiver(200) as (url, got):
        webhook = Webhook(url)
        webhook.close()  # nothing yet
        for turn in (1, 2):
            webhook.start()
            webhook.start()
            webhook(JUMP)
            until(lambda turn=turn: len(got) == turn)  # type: ignore[misc]  # mypy cannot see its type
            webhook.close()
            webhook.close()
    assert threading.active_count() == before


def test_a_body_is_json_of_all_that_the_event_says() -> None:
    settled = RefusalsSettled("refusals", "all", 120.0, False)
    assert json.loads(body_of(settled)) == {
        "event": "RefusalsSettled", "rule": "all", "seconds": 120.0, "adopted": False,
    }  # fmt: skip


def test_a_deadline_is_kept() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(OSError, match="timed out"):
            post_json(url, b"{}", 0.05)


@pytest.mark.parametrize(
    "url", ["", "example.org/secret", "ftp://secret/", "http://", 7, "http://["]
)
def test_an_address_that_is_none(url: Any) -> None:
    with pytest.raises(ValueError, match="a webhook must be an http or https URL") as caught:
        Webhook(url)
    assert "secret" not in str(caught.value)
