"""Webhook: posts events to an address as JSON, in the background.

A webhook is a hook like any other, and returns at once: a thread, from `start` to `close`,
does the posting. It tries twice. What it cannot post in time is dropped and counted; a slow
receiver never slows a decision.
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
from email.message import Message
from typing import IO
from urllib.parse import urlsplit

from penstock._version import __version__
from penstock.clock import WALL, Clock
from penstock.durations import Duration, parse_duration
from penstock.events import Event
from penstock.metrics.snapshot import Snapshot

logger = logging.getLogger("penstock.metrics")

MOST_WAITING = 100
PAUSE = 1.0
# Who closes waits no longer than this for what is under way.
_PATIENCE = 1.0

Post = Callable[[str, bytes, float], None]


class Webhook:
    """``watch.subscribe(webhook)``, between `start` and `close`.

    ``post(url, body, seconds)`` may be another one; it raises OSError if it did not work.
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
        # An address often carries a secret: logs say the host alone.
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
        """Stop, after what is being posted, and not after what waits."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._closing = True
        with contextlib.suppress(queue.Full):  # then it is awake, and sees that it is closing
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
            except Exception as error:  # whatever another `post` raises must not end the thread
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
        """Its own metrics, to be put beside those of the workers."""
        out = Snapshot(self._clock.now())
        for outcome, count in self._outcomes.items():
            out.set("penstock_webhooks_total", (outcome,), count)
        return out


def body_of(event: Event) -> bytes:
    """``{"event": "RefusalsJumped", "rule": "api/user", "count": 412.0, ...}``"""
    told = dataclasses.asdict(event)
    told.pop("store")
    return json.dumps({"event": type(event).__name__, **told}, default=str).encode()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would turn a POST into a GET, or lead it elsewhere: it is an error."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        return None


def post_json(url: str, body: bytes, seconds: float) -> None:
    """OSError unless it is answered by a status from 200 to 299 in time."""
    headers = {"Content-Type": "application/json", "User-Agent": f"penstock/{__version__}"}
    request = urllib.request.Request(url, body, headers, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=seconds) as answer:
            answer.read(1024)
    except urllib.error.HTTPError as error:
        error.close()
        raise OSError(f"it answered {error.code}") from None


def _checked(url: object) -> str:
    if isinstance(url, str):
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme in ("http", "https") and parts.hostname:
            return url
    # Not shown: it may hold a secret.
    raise ValueError('a webhook is an http or https address, such as "https://example.org/hook"')
