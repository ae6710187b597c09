"""Says once in the log that requests come through a proxy that nobody declared.

Without ``trusted`` or ``hops``, all clients behind a proxy have the proxy's address, and share
one limit. A request shows this if it comes from a private address and has a forwarded header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.integrations.deciding.identity import FORWARDED, UNIX, X_FORWARDED_FOR, Trust
from penstock.integrations.deciding.notices import warn_once
from penstock.rules.lists import ValueList

# Where proxies of one's own have their addresses.
_PRIVATE = ValueList(
    ["10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
     "192.168.0.0/16", "::1/128", "fc00::/7", "fe80::/10"]
)  # fmt: skip
# A proxy adds its header to every request: one in so many is enough to see it, and none among so
# many means that there is no proxy.
LOOK_EVERY = 16
LOOK_UNTIL = 100_000


def trust_of(trusted: Iterable[str], hops: int, forwarded: str) -> Trust:
    """The trust of these options; one that looks for proxies if they name none."""
    trust = Trust(trusted, hops, forwarded)
    return ProxyNotice() if trust.nobody else trust


class ProxyNotice(Trust):
    """Trusts nobody, like ``Trust()``, and looks for a proxy until it has seen one."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        super().__init__()
        self.nobody = False  # so that `client` is called
        self._asked = 0

    def client(self, peer: str | None, header: Callable[[str], str | None]) -> str | None:
        self._asked += 1
        if self._asked % LOOK_EVERY == 1:
            self._look(peer, header)
            if self._asked > LOOK_UNTIL:
                self.nobody = True
        return peer

    def _look(self, peer: str | None, header: Callable[[str], str | None]) -> None:
        if peer is not None and peer not in _PRIVATE:
            return
        for name in (X_FORWARDED_FOR, FORWARDED):
            if header(name) is not None:
                self.nobody = True  # looks no more
                proxy = UNIX if peer is None else peer
                more = "" if name == X_FORWARDED_FOR else f" and forwarded={FORWARDED!r}"
                warn_once(
                    ("proxy",),
                    "requests come from %s with the header %s, as from a proxy: all its clients "
                    "share one limit. If it is yours, write trusted=[%r]%s, or its network; "
                    "with penstock proxy, --trusted %s",
                    "a Unix socket" if peer is None else peer, name, proxy, more, proxy,
                )  # fmt: skip
                return
