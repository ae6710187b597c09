"""ProxyServer: accepts the connections of clients."""

from __future__ import annotations

from penstock.proxy.base import ProxyBase
from penstock.proxy.client import ClientConnection


class ProxyServer(ProxyBase):
    def factory(self) -> ClientConnection:
        """The protocol factory for ``loop.create_server``."""
        return ClientConnection(self)
