"""Pool: connections to the server that rest between two exchanges, the latest first."""

from __future__ import annotations

import asyncio

from penstock.proxy.limits import ProxyLimits
from penstock.proxy.link import Link
from penstock.proxy.target import Target


class Pool:
    """All links to one server."""

    def __init__(self, target: Target, limits: ProxyLimits) -> None:
        self.target = target
        self.limits = limits
        self.links: set[Link] = set()
        self._resting: list[Link] = []
        self.opened = 0
        self._closed = False

    async def take(self, repeatable: bool, new: bool = False) -> Link:
        """A link, rested or new; raises `Unreachable`.

        The server may be closing one that has rested for long. What cannot be said again does
        not take the risk.
        """
        limits = self.limits
        most = limits.rest_time if repeatable else limits.fresh_time
        now = asyncio.get_running_loop().time()
        while self._resting and not new:
            if not self._resting[-1].alive:
                self._resting.pop()
            elif now - self._resting[-1].rested_at >= most:
                break  # the others have rested for longer
            else:
                return self._resting.pop()
        self.opened += 1
        return await self.target.connect(lambda: Link(self), limits.connect_time)

    def rest(self, link: Link) -> None:
        if self._closed or len(self._resting) >= self.limits.most_resting:
            link.drop()
            return
        link.rested_at = asyncio.get_running_loop().time()
        self._resting.append(link)

    def joined(self, link: Link) -> None:
        self.links.add(link)

    def left(self, link: Link) -> None:
        self.links.discard(link)
        if link in self._resting:
            self._resting.remove(link)

    def judge(self, now: float) -> None:
        """Close what has rested for too long, and give up on what is too slow."""
        kept = []
        for link in self._resting:
            if now - link.rested_at > self.limits.rest_time:
                link.drop()
            else:
                kept.append(link)
        self._resting = kept
        for link in [*self.links]:
            link.judge(now)

    @property
    def resting(self) -> int:
        return len(self._resting)

    def close(self) -> None:
        """No more rest. Links that are in use end with their exchange."""
        self._closed = True
        for link in self._resting:
            link.drop()
        self._resting = []
