"""Webhook: posts events to an address as JSON, in the background.

A webhook is a hook that returns at once: a thread, which runs from `start` to `close`, sends
the requests, with one retry. Events that cannot be sent in time are dropped and counted; a
slow receiver never slows down a decision.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from penstock._version import __version__
from penstock.clock import WALL, Clock
from penstock.durations import Duration, parse_duration
from penstock.events import Event
from penstock.metrics.snapshot import Snapshot

logger = logging.getLogger("penstock.metrics")

MOST_WAITING = 100
PAUSE = 1.0
# `close` waits at most this much longer for a request in progress.
_PATIENCE = 1.0

Post = Callable[[str, bytes, float], None]


class Webhook:
    """Posts events; use it with ``watch.subscribe(webhook)``, between `start` and `close`.

    ``post(url, body, seconds)`` can be replaced; it raises OSError if it failed.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: Duration = "5s",
        post: Post | None = None,
        clock: Clock = WALL,
    ) -> None:
        self._url = _checked(url)
        # The URL often contains a secret: logs only show the host.
        self._host = urlsplit(url).hostname
        self._timeout = parse_duration(timeout, "timeout") / 1e9
        self._post = post_json if post is None else post
        self._clock = clock
        self._queue: queue.Queue[Event | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._closing = False
        self._outcomes = {"sent": 0, "failed": 0, "dropped": 0}

    def start(self) -> None:
        if self._thread is None:
            self._closing = False
            self._thread = threading.Thread(target=self._run, name="penstock-webhook", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop after the request in progress; events that wait are dropped."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._closing = True
        with contextlib.suppress(queue.Full):  # then the thread is awake and sees it
            self._queue.put_nowait(None)
        thread.join(2 * self._timeout + PAUSE + _PATIENCE)

    def __call__(self, event: Event) -> None:
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._outcomes["dropped"] += 1
            logger.warning("the webhook at %s is too slow: an event was dropped", self._host)

    def _run(self) -> None:
        while not self._closing:
            event = self._queue.get()
            if event is not None:
                self._send(body_of(event))

    def _send(self, body: bytes) -> None:
        for attempt in (1, 2):
            try:
                self._post(self._url, body, self._timeout)
            except Exception as error:  # a custom `post` must not end the thread
                problem = str(error).replace(self._url, f"{self._host}/...")
                logger.warning(
                    "the webhook at %s failed (%s of 2): %s", self._host, attempt, problem
                )
                if attempt == 1 and not self._closing:
                    self._clock.sleep(PAUSE)
                    continue
                self._outcomes["failed"] += 1
                return
            self._outcomes["sent"] += 1
            return

    def snapshot(self) -> Snapshot:
        """Its own metrics, to be added to those of the workers."""
        out = Snapshot(self._clock.now())
        for outcome, count in self._outcomes.items():
            out.set("penstock_webhooks_total", (outcome,), count)
        return out


def body_of(event: Event) -> bytes:
    """``{"event": "RefusalsJumped", "rule": "api/user", "count": 412.0, ...}``"""
    fields = dataclasses.asdict(event)
    fields.pop("store")
    return json.dumps({"event": type(event).__name__, **fields}, default=str).encode()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it would turn a POST into a GET, or send it elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def post_json(url: str, body: bytes, seconds: float) -> None:
    """Raises OSError unless it gets a 2xx response in time."""
    headers = {"Content-Type": "application/json", "User-Agent": f"penstock/{__version__}"}
    request = urllib.request.Request(url, body, headers, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=seconds) as response:
            response.read(1024)
    except urllib.error.HTTPError as error:
        error.close()
        raise OSError(f"HTTP status {error.code}") from None


def _checked(url: object) -> str:
    if isinstance(url, str):
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme in ("http", "https") and parts.hostname:
            return url
    # The URL is not shown: it may contain a secret.
    raise ValueError('a webhook must be an http or https URL such as "https://example.org/hook"')
