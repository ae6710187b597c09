"""Certificates of a server that can be renewed while it runs."""

from __future__ import annotations

import ssl
from pathlib import Path


class ServerTLS:
    """A certificate, its key and, for mutual TLS, whose clients are let in.

    ``context`` goes to ``create_server(ssl=...)``. `reload` reads the files again: handshakes
    that begin from then on use what they say now, connections that stand are not touched. If
    a file is missing or broken it raises, and all stays as it was.
    """

    def __init__(
        self, certificate: str | Path, key: str | Path, clients: str | Path | None = None
    ) -> None:
        self.certificate = Path(certificate)
        self.key = Path(key)
        self.clients = None if clients is None else Path(clients)
        self._current = self._read()
        self.context = self._read()
        # Called at the start of every handshake, also when the client names no server.
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        self._current = self._read()

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        connection.context = self._current

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # RFC 9113 9.2: no compression, and no renegotiation below an open stream.
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["h2"])
        context.load_cert_chain(self.certificate, self.key)
        if self.clients is not None:
            context.load_verify_locations(self.clients)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
