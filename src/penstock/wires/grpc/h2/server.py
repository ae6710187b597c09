"""A gRPC server over nghttp2: what makes connections, counts them and sees them off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.clock import MONOTONIC, Clock
from penstock.wires.grpc.h2._nghttp2 import Wire
from penstock.wires.grpc.h2.limits import Limits
from penstock.wires.grpc.h2.protocol import H2Protocol
from penstock.wires.grpc.methods import Methods

# Between "go elsewhere" and "no more": time for what is on its way to arrive.
NOTICE = 0.1
# For last answers to leave, when the time to wait for them is over.
LAST_WORDS = 0.5


class H2Server:
    """Serves ``methods`` on any number of listeners, which are the caller's::

        server = H2Server(methods)
        listener = await loop.create_server(server.factory, "::", 8081)
        ...
        listener.close()
        await server.drain(5)

    Plain HTTP/2 (with prior knowledge) as it is, TLS with `tls.ServerTLS.listening`,
    unix sockets with ``create_unix_server``. One event loop, the running one.
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
        """For ``create_server`` and its kin."""
        return H2Protocol(self)

    @property
    def connections(self) -> int:
        return len(self._protocols)

    @property
    def open_streams(self) -> int:
        return sum(protocol.open for protocol in self._protocols)

    def counts(self) -> dict[str, int]:
        """What happened since the start, for metrics to read.

        ``connections`` were made and ``turned_away`` those over the limit; ``streams`` were
        opened and ``messages`` given to methods; ``refused`` were requests that the wire itself
        answered; ``resets`` came from peers; ``floods`` and ``slow`` were cut off.
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
        """Answer what is open, take no more, close. Whether ``grace`` seconds were enough.

        Peers are told to go elsewhere; a moment later, when that has reached them, the last
        word on what is still answered is said. New connections are closed at once.
        """
        self._draining = True
        return await self._see_off(set(self._protocols), grace)

    async def readmit(
        self, admits: Callable[[asyncio.BaseTransport], bool], grace: float = 5.0
    ) -> None:
        """Close the connections that would not be let in any more, as `drain` does with all.

        Once now, and once more when the handshakes that had begun by now must have ended.
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
        """Whether the last of these connections goes within that time."""
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
