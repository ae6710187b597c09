"""The certificates of the listeners: opened from settings, and read again when they change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from penstock.running.settings import Settings, SettingsError
from penstock.wires.tls import H2, HTTP_1_1, ServerTLS

logger = logging.getLogger("penstock.server")

# Closes the connections of clients that are no longer accepted.
Readmit = Callable[[Callable[[asyncio.BaseTransport], bool]], Coroutine[Any, Any, None]]

# The prefix of a listener's settings, and its protocol.
PREFIXES = {"grpc": ("", H2), "http": ("http_", HTTP_1_1), "admin": ("admin_", HTTP_1_1)}
_FIELDS = ("tls_cert", "tls_key", "tls_client_ca")


def open_certificate(settings: Settings, listener: str) -> ServerTLS | None:
    """Of "grpc", "http" or "admin"; None if it has none."""
    prefix, protocol = PREFIXES[listener]
    certificate, key, clients = (getattr(settings, prefix + name) for name in _FIELDS)
    if not certificate:
        return None
    try:
        return ServerTLS(certificate, key, clients or None, protocol)
    except (OSError, ValueError) as error:
        raise SettingsError(f"the certificate for {listener} cannot be used: {error}") from None


def certificate_files(settings: Settings) -> list[str]:
    """Of all listeners."""
    names = [prefix + name for prefix, _ in PREFIXES.values() for name in _FIELDS]
    return [path for name in names if (path := getattr(settings, name))]


class Certificates:
    """Those of one process."""

    def __init__(self) -> None:
        self._open: list[tuple[ServerTLS, Readmit | None]] = []
        self._readmitting: set[asyncio.Task[None]] = set()

    def add(self, tls: ServerTLS, readmit: Readmit | None = None) -> None:
        self._open.append((tls, readmit))

    def reload(self) -> str | None:
        """Read all files again. Returns the first error; then that certificate stays as it was."""
        first: str | None = None
        for tls, readmit in self._open:
            try:
                changed_ca = tls.reload()
            except (OSError, ValueError) as error:
                logger.error("the new certificate cannot be used, the old one stays: %s", error)
                first = first or str(error)
                continue
            if changed_ca and readmit is not None:
                task = asyncio.create_task(readmit(tls.admits))
                self._readmitting.add(task)
                task.add_done_callback(self._readmitting.discard)
        return first

    def close(self) -> Awaitable[Any]:
        """Stop closing connections."""
        for task in self._readmitting:
            task.cancel()
        return asyncio.gather(*self._readmitting, return_exceptions=True)
