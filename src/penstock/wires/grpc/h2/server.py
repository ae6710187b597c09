"""A gRPC server over nghttp2: creates, counts and drains connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.clock import MONOTONIC, Clock
from penstock.wires.grpc.h2._nghttp2 import Wire
from penstock.wires.grpc.h2.limits import Limits
from penstock.wires.grpc.h2.protocol import H2Protocol
from penstock.wires.grpc.methods import Methods

# Between the two GOAWAY frames: time for requests in flight to arrive.
NOTICE = 0.1
# For the last responses to be sent when the grace period is over.
LAST_WORDS = 0.5


class H2Server:
    """Serves ``methods`` on any number of listeners, which the caller owns::

        server = H2Server(methods)
        listener = await loop.create_server(server.factory, "::", 8081)
        ...
        listener.close()
        await server.drain(5)

    Plain HTTP/2 (with prior knowledge) by default, TLS with `tls.ServerTLS.listening`,
    Unix sockets with ``create_unix_server``. It uses the running event loop.
    """

    def __init__(
        self, methods: Methods, limits: Limits | None = None, *, clock: Clock = MONOTONIC
    ) -> None:
        self.limits = Limits() if limits is None else limits
        self.clock = clock
        self.wire = Wire(methods, self.limits)
        self.slow = 0
        self._protocols: set[H2Protocol] = set()
        self._accepted = 0
        self._turned_away = 0
        self._draining = False
        self._awaited: list[tuple[set[H2Protocol], asyncio.Event]] = []  # to be gone

    def factory(self) -> H2Protocol:
        """The protocol factory for ``create_server``."""
        return H2Protocol(self)

    @property
    def connections(self) -> int:
        return len(self._protocols)

    @property
    def open_streams(self) -> int:
        return sum(protocol.open for protocol in self._protocols)

    @property
    def open_bidi_streams(self) -> int:
        return self.wire.bidi_streams

    def counts(self) -> dict[str, int]:
        """Counts since the start, for metrics.

        ``connections`` were opened and ``turned_away`` above the limit; ``streams`` were
        opened and ``messages`` passed to methods; ``refused`` are requests that the wire itself
        rejected; ``resets`` came from peers; ``floods`` and ``slow`` were closed.
        """
        counts = self.wire.counts()
        counts["slow"] += self.slow
        return {"connections": self._accepted, "turned_away": self._turned_away, **counts}

    def enter(self, protocol: H2Protocol) -> bool:
        """Whether there is room for one more connection."""
        if self._draining or len(self._protocols) >= self.limits.connections:
            self._turned_away += 1
            return False
        self._accepted += 1
        self._protocols.add(protocol)
        return True

    def left(self, protocol: H2Protocol) -> None:
        self._protocols.discard(protocol)
        for leaving, gone in self._awaited:
            leaving.discard(protocol)
            if not leaving:
                gone.set()

    async def drain(self, grace: float = 5.0) -> bool:
        """Answer open calls, accept no more, and close. Whether ``grace`` seconds were enough.

        Peers get a first GOAWAY, and a moment later, when it has reached them, a second one
        with the last stream that is answered. New connections are closed at once.
        """
        self._draining = True
        return await self._see_off(set(self._protocols), grace)

    async def readmit(
        self, admits: Callable[[asyncio.BaseTransport], bool], grace: float = 5.0
    ) -> None:
        """Drain the connections that would no longer be accepted.

        Once now, and once more when handshakes in progress must have ended.
        """
        for wait in (0.0, self.limits.handshake_seconds):
            await asyncio.sleep(wait)
            old = {each for each in self._protocols if not admits(each.transport)}
            await self._see_off(old, grace)

    async def _see_off(self, leaving: set[H2Protocol], grace: float) -> bool:
        for protocol in list(leaving):
            protocol.warn()
        notice = min(NOTICE, grace)
        if not await self._gone(leaving, notice):
            for protocol in leaving & self._protocols:
                protocol.leave()
        await self._gone(leaving, grace - notice)
        left = leaving & self._protocols
        enough = sum(protocol.open for protocol in left) == 0
        for protocol in left:
            protocol.stop()
        if not await self._gone(leaving, LAST_WORDS):
            for protocol in leaving & self._protocols:
                protocol.abort()
            await self._gone(leaving, LAST_WORDS)
        return enough

    async def _gone(self, leaving: set[H2Protocol], seconds: float) -> bool:
        """Whether all of these connections close within that time."""
        left = leaving & self._protocols
        if not left:
            return True
        awaited = (left, asyncio.Event())
        self._awaited.append(awaited)
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await awaited[1].wait()
        except TimeoutError:
            return not left
        finally:
            self._awaited.remove(awaited)
        return True
