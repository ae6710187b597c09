"""Load for Envoys that divide a limit, and whether together they allowed too much."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Mapping

CONNECTIONS = 4


class Load:
    """Requests at a steady pace to each Envoy; when each that was allowed was sent and answered."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.allowed: list[tuple[float, float]] = []
        self.sent = 0

    async def run(self, rates: Mapping[str, float], seconds: float) -> None:
        """Requests a second, by address. An Envoy that is away gets none."""
        end = time.monotonic() + seconds
        await asyncio.gather(
            *[
                self._send(where, rate / CONNECTIONS, end, number / rate)
                for where, rate in rates.items()
                for number in range(CONNECTIONS)
            ]
        )

    async def _send(self, where: str, rate: float, end: float, after: float) -> None:
        host, _, port = where.rpartition(":")
        request = f"GET / HTTP/1.1\r\nhost: {where}\r\nx-api-key: {self.key}\r\n\r\n".encode()
        writer = None
        due = time.monotonic() + after  # one after the other, not all at once
        while (now := time.monotonic()) < end:
            if due > now:
                await asyncio.sleep(due - now)
            due = max(due + 1 / rate, now - 0.2)
            try:
                if writer is None:
                    reader, writer = await asyncio.open_connection(host, int(port))
                sent = time.monotonic()
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(length)
            except (OSError, asyncio.IncompleteReadError):
                writer = None
                await asyncio.sleep(0.05)
                continue
            self.sent += 1
            if head.startswith(b"HTTP/1.1 200"):
                self.allowed.append((sent, time.monotonic()))
        if writer is not None:
            writer.close()

    def rate(self, start: float, end: float) -> float:
        """Allowed requests a second between two moments."""
        return sum(start <= sent < end for sent, _ in self.allowed) / (end - start)

    def most_above(self, rate: float, burst: float, step: float = 0.1) -> float:
        """By how much any interval exceeds burst + rate x time; below 0 if none does.

        A request counts for an interval if it was sent and answered in it.
        """
        first, last = self.allowed[0][0], max(answered for _, answered in self.allowed)
        by_sent = sorted(self.allowed)
        sents = [sent for sent, _ in by_sent]
        worst = -burst
        for index in range(int((last - first) / step) + 1):
            start = first + index * step
            ends = sorted(answered for _, answered in by_sent[bisect_left(sents, start) :])
            for count, answered in enumerate(ends, 1):
                worst = max(worst, count - burst - rate * (answered - start))
        return worst
