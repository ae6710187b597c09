"""Server certificates that can be renewed at run time."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

# Protocols, as TLS names them (ALPN).
H2, HTTP_1_1 = "h2", "http/1.1"


class ServerTLS:
    """A certificate, its key and, for mutual TLS, the authority of clients; for one protocol.

    `listening` is for ``create_server``. `reload` reads the files again: new handshakes
    use them, and earlier sessions cannot be resumed. Open connections are not touched; `admits`
    finds those of another authority. If a file is missing or invalid it raises, and nothing
    changes.
    """

    def __init__(
        self,
        certificate: str | Path,
        key: str | Path,
        clients: str | Path | None = None,
        protocol: str = H2,
    ) -> None:
        self.certificate = Path(certificate)
        self.key = Path(key)
        self.clients = None if clients is None else Path(clients)
        self._protocol = protocol
        self.context = _ForListeners(ssl.PROTOCOL_TLS_SERVER)
        self.context.current = self._read()

    def reload(self) -> bool:
        """Read the files; returns whether the authority of clients has changed."""
        before = self.context.current.authority
        self.context.current = self._read()
        return self.context.current.authority != before

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Whether the client of a connection was accepted by the current authority."""
        secured: ssl.SSLObject = transport.get_extra_info("ssl_object")
        context = secured.context
        current = self.context.current.authority
        return isinstance(context, _Context) and context.authority == current

    def listening(self, handshake: float, shutdown: float = 1.0) -> dict[str, Any]:
        """Arguments of ``create_server``, with its time-outs in seconds.

        Its default time-out for a handshake is a minute.
        """
        return {
            "ssl": self.context,
            "ssl_handshake_timeout": handshake,
            "ssl_shutdown_timeout": shutdown,
        }

    def _read(self) -> _Context:
        context = _Context(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # RFC 9113 9.2: no compression, and no renegotiation below an open stream.
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols([self._protocol])
        context.load_cert_chain(self.certificate, self.key)
        if self.clients is not None:
            context.load_verify_locations(self.clients)
            context.verify_mode = ssl.CERT_REQUIRED
            context.authority = self.clients.read_bytes()
        return context


class _Context(ssl.SSLContext):
    """``authority`` is the content of the file with the authority of clients."""

    authority = b""


class _ForListeners(ssl.SSLContext):
    """The context of listeners: starts each handshake with the newest context.

    ``sni_callback`` would only change the certificate: sessions would stay those of the old
    context, so a client could resume one that an earlier authority had accepted.
    """

    current: _Context

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return self.current.wrap_bio(*args, **options)
