"""The address of the server behind the proxy."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from penstock.errors import PenstockError

P = TypeVar("P", bound=asyncio.Protocol)


class Unreachable(PenstockError):
    """The server cannot be reached; ``status`` is the response to the client."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


class Target:
    """``http://host:port``, ``https://host:port`` or ``unix:/path``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._path: str | None = None
        self._tls: ssl.SSLContext | None = None
        wanted = f"upstream is http://HOST:PORT, https://HOST:PORT or unix:PATH, not {text!r:.200}"
        if text.startswith("unix:"):
            self._path = text.removeprefix("unix:").removeprefix("//")
            if not self._path:
                raise ValueError(wanted)
            return
        try:
            url = urlsplit(text)
            port = url.port
        except ValueError:
            raise ValueError(wanted) from None
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(wanted)
        if url.path not in ("", "/") or url.query or url.fragment or url.username:
            raise ValueError(f"upstream is a server, without path or user: {text!r:.200}")
        self._host = url.hostname
        self._port = port or (443 if url.scheme == "https" else 80)
        if url.scheme == "https":
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])

    async def connect(self, factory: Callable[[], P], seconds: float) -> P:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                if self._path is not None:
                    _, protocol = await loop.create_unix_connection(factory, self._path)
                else:
                    _, protocol = await loop.create_connection(
                        factory, self._host, self._port, ssl=self._tls
                    )
                return protocol
        except TimeoutError:
            raise Unreachable(504, f"no connection to {self.text} in {seconds:g} s") from None
        except OSError as error:
            raise Unreachable(502, f"no connection to {self.text}: {error}") from None

    def __repr__(self) -> str:
        return self.text
