"""Pinger: a client that knows nothing of Penstock, and says when the server answers."""

from __future__ import annotations

import socket
import threading
import time
from typing import Self
from urllib.parse import urlsplit

from stores.machine import Stalls
from stores.redis_server import wait_until

_PATIENCE = 60.0


class Pinger:
    """A client that has nothing to do with Penstock: when does the server answer?"""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._place = place.hostname or "127.0.0.1", place.port or 6379
        self._pongs: list[float] = []
        self.stalls = Stalls()  # of the server, or of the way there
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pinger", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with socket.create_connection(self._place, timeout=0.2) as link:
                    while not self._stop.is_set():
                        start = time.monotonic()
                        link.sendall(b"PING\r\n")
                        if not link.recv(4096).startswith(b"+PONG"):
                            break
                        pong = time.monotonic()
                        self.stalls.note(start, pong)
                        self._pongs.append(pong)
                        time.sleep(0.002)
            except OSError:
                pass
            time.sleep(0.002)

    def first_after(self, moment: float, patience: float = _PATIENCE) -> float:
        """When the server first answered after this moment; waits for it."""
        wait_until(lambda: bool(self._pongs) and self._pongs[-1] > moment, "a PONG", patience)
        return next(pong for pong in self._pongs if pong > moment)
