"""The address of a client behind proxies. This is a matter of security.

The peer of the connection is the client, unless there are trusted proxies. Then the addresses
in ``X-Forwarded-For`` (or ``Forwarded``) are read **from the right**, as each proxy appends the
address of its own peer::

    X-Forwarded-For: 6.6.6.6, 203.0.113.7, 10.0.0.2     peer: 10.0.0.1
                     forged   client       proxy              proxy
                              ^ the first from the right that is not a trusted proxy

Everything to the left of the client was sent by the client, and is ignored. An entry that is
not an address ends the walk. The client is then the last proxy that is known, so that requests
with invalid entries share one limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from penstock.errors import RulesError
from penstock.rules.lists import ValueList, as_address, as_network

X_FORWARDED_FOR, FORWARDED = "x-forwarded-for", "forwarded"
UNIX = "unix"
# A proxy adds one address; nobody has more proxies than this.
MOST_HOPS = 32
# An IPv6 address with its zone, in brackets, and a port.
LONGEST = 72

# One `name=value` of Forwarded; a value may be a quoted string.
_PAIR = re.compile(r'\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s",;]*))\s*')
_IPV4_PORT = re.compile(r"([0-9.]+):[0-9]{1,5}")
_IPV6_PORT = re.compile(r"\[([^\]]*)\](?::[0-9]{1,5})?")


class Trust:
    """Which proxies are trusted.

    ``trusted``: their networks in CIDR notation, and ``"unix"`` for a Unix socket. Or
    ``hops``: how many proxies each request passes, whatever their addresses.
    ``header``: the one that they write: ``"x-forwarded-for"`` or ``"forwarded"``. Only one, as a
    proxy that writes one passes on the other, which may be forged.
    """

    __slots__ = ("_header", "_hops", "_networks", "_unix", "nobody")

    def __init__(
        self, trusted: Iterable[str] = (), hops: int = 0, header: str = X_FORWARDED_FOR
    ) -> None:
        if isinstance(trusted, (str, bytes)):
            raise TypeError(f"trusted is a list of networks, such as [{trusted!r}]")
        names = [check_network(name) for name in trusted]
        if type(hops) is not int or not 0 <= hops <= MOST_HOPS:
            raise ValueError(f"hops is a whole number from 0 to {MOST_HOPS}, not {hops!r:.100}")
        if names and hops:
            raise ValueError("name the trusted proxies or their number (hops), not both")
        if not isinstance(header, str) or header.lower() not in (X_FORWARDED_FOR, FORWARDED):
            raise ValueError(f"header is {X_FORWARDED_FOR!r} or {FORWARDED!r}, not {header!r:.100}")
        self._networks = ValueList([name for name in names if name != UNIX])
        self._unix = UNIX in names
        self._hops = hops
        self._header = header.lower()
        self.nobody = not names and not hops

    def also_unknown(self) -> Trust:
        """The same, and a peer without an address is trusted: a log may not say who it was."""
        out = Trust(hops=self._hops, header=self._header)
        out._networks, out._unix, out.nobody = self._networks, True, self.nobody
        return out

    def trusts(self, peer: str | None) -> bool:
        """Whether the headers of this peer are trusted."""
        if self._hops:
            return True
        return self._unix if peer is None else peer in self._networks

    def client(self, peer: str | None, header: Callable[[str], str | None]) -> str | None:
        """The address of the client; None if neither the peer nor a trusted header has one."""
        if self.nobody or not self.trusts(peer):
            return peer
        client = peer
        text = header(self._header)
        if text is None:
            return client
        for hop, entry in enumerate(self._from_the_right(text), 1):
            address = _address(entry)
            if address is None:
                break
            client = address
            if hop >= (self._hops or MOST_HOPS) or not self.trusts(client):
                break
        return client

    def _from_the_right(self, text: str) -> Iterator[str]:
        return _forwarded(text) if self._header == FORWARDED else _x_forwarded_for(text)


NOBODY_TRUSTED = Trust()


def check_network(name: object) -> str:
    """A network in CIDR notation, an address, or the word for Unix sockets."""
    if isinstance(name, str):
        try:
            if name == UNIX or as_network(name) is not None:
                return name
        except RulesError as error:
            raise ValueError(str(error)) from None
    raise ValueError(f"trusted names networks, such as '10.0.0.0/8', or 'unix', not {name!r:.100}")


def _address(entry: str) -> str | None:
    """An address with or without a port, as text in one spelling."""
    if len(entry) > LONGEST:  # addresses are cached, and this is none
        return None
    match = _IPV6_PORT.fullmatch(entry) or _IPV4_PORT.fullmatch(entry)
    address = as_address(match[1] if match else entry)
    return None if address is None else str(address).partition("%")[0]


def _x_forwarded_for(text: str) -> Iterator[str]:
    for _ in range(MOST_HOPS):
        text, comma, entry = text.rpartition(",")
        yield entry.strip()
        if not comma:
            return


def _forwarded(text: str) -> Iterator[str]:
    """The ``for`` of every element; "" where it is absent or the element is malformed.

    A comma is a separator if the number of quotes to its right is even. Those belong to
    proxies: a quote that a client leaves open does not extend over them.
    """
    end, paired = len(text), True
    hops = 0
    for at in range(len(text) - 1, -1, -1):
        if text[at] == '"' and text[at - 1 : at] != "\\":
            paired = not paired
        elif text[at] == "," and paired:
            yield _for(text[at + 1 : end])
            end = at
            hops += 1
            if hops == MOST_HOPS:
                return
    yield _for(text[:end])


def _for(element: str) -> str:
    entries: list[str] = []
    at = 0
    while at < len(element):
        pair = _PAIR.match(element, at)
        if pair is None or element[pair.end() : pair.end() + 1] not in ("", ";"):
            return ""
        at = pair.end() + 1
        if pair[1].lower() == "for":
            entries.append(pair[3] if pair[2] is None else re.sub(r"\\(.)", r"\1", pair[2]))
    return entries[0] if len(entries) == 1 else ""
