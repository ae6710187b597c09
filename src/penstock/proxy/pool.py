"""Pool: idle connections to the server, the most recently used first."""

from __future__ import annotations

import asyncio

from penstock.proxy.limits import ProxyLimits
from penstock.proxy.target import Target
from penstock.proxy.upstream import UpstreamConnection


class Pool:
    """All connections to one server."""

    def __init__(self, target: Target, limits: ProxyLimits) -> None:
        self.target = target
        self.limits = limits
        self.connections: set[UpstreamConnection] = set()
        self._resting: list[UpstreamConnection] = []
        self.opened = 0
        self._closed = False

    async def take(self, repeatable: bool, new: bool = False) -> UpstreamConnection:
        """An idle connection or a new one; raises `Unreachable`.

        The server may just be closing one that was idle for long. A request that cannot be
        repeated does not take that risk.
        """
        limits = self.limits
        most = limits.rest_time if repeatable else limits.fresh_time
        now = asyncio.get_running_loop().time()
        while self._resting and not new:
            if not self._resting[-1].alive:
                self._resting.pop()
            elif now - self._resting[-1].rested_at >= most:
                break  # the others have been idle for longer
            else:
                return self._resting.pop()
        self.opened += 1
        return await self.target.connect(lambda: UpstreamConnection(self), limits.connect_time)

    def rest(self, upstream: UpstreamConnection) -> None:
        if self._closed or len(self._resting) >= self.limits.most_resting:
            upstream.drop()
            return
        upstream.rested_at = asyncio.get_running_loop().time()
        self._resting.append(upstream)

    def joined(self, upstream: UpstreamConnection) -> None:
        self.connections.add(upstream)

    def left(self, upstream: UpstreamConnection) -> None:
        self.connections.discard(upstream)
        if upstream in self._resting:
            self._resting.remove(upstream)

    def judge(self, now: float) -> None:
        """Close connections that were idle for too long or are too slow."""
        kept = []
        for upstream in self._resting:
            if now - upstream.rested_at > self.limits.rest_time:
                upstream.drop()
            else:
                kept.append(upstream)
        self._resting = kept
        for upstream in [*self.connections]:
            upstream.judge(now)

    @property
    def resting(self) -> int:
        return len(self._resting)

    def close(self) -> None:
        """Close idle connections. Those in use close after their exchange."""
        self._closed = True
        for upstream in self._resting:
            upstream.drop()
        self._resting = []
