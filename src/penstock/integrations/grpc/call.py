"""Call and Status, what functions get of a call and of its end; and the key functions.

gRPC writes peers like this::

    ipv4:203.0.113.7:51234      ipv6:[2001:db8::1]:51234      ipv6:%5B::1%5D:51234      unix:

Keys of addresses are those of the web frameworks, so that one limit can count both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import grpc

from penstock.integrations.deciding import keys
from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.deciding.identity import NOBODY_TRUSTED, Trust
from penstock.integrations.deciding.key_functions import (
    check_key_function,
    example,
    or_address,
)
from penstock.rules.aliases import ADDRESS
from penstock.rules.lists import as_address, network_of

Value = str | bytes
Key = str | None
KeyFunction = Callable[["Call"], Key | Awaitable[Key]]

UNKNOWN = "ip:unknown"
# By what users write instead of a function.
_NAMES = {"peer": "by_peer", "ip": "by_peer", "address": "by_peer", "method": "by_method"}
# The codes of failures of the server.
_FAILURES = {
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.UNIMPLEMENTED,
}


@dataclass(frozen=True)
class Call:
    """A call to be checked.

    - ``method``: ``"/shop.Orders/Place"``, of which ``service`` is ``"shop.Orders"`` and
      ``name`` is ``"Place"``
    - ``peer``: the other end of the connection, as gRPC writes it
    - ``address``: the caller's address, without a port: the peer's, or the one that trusted
      proxies report; None for a Unix socket
    - ``metadata``: names in lower case; each may have several values
    """

    method: str
    peer: str
    pairs: tuple[tuple[str, Value], ...] = ()
    trust: Trust = NOBODY_TRUSTED

    @property
    def service(self) -> str:
        return self.method.rpartition("/")[0].lstrip("/")

    @property
    def name(self) -> str:
        return self.method.rpartition("/")[2]

    @cached_property
    def address(self) -> str | None:
        return self.trust.client(address_of(self.peer), self.text)

    @cached_property
    def metadata(self) -> Mapping[str, tuple[Value, ...]]:
        values: dict[str, tuple[Value, ...]] = {}
        for name, value in self.pairs:
            name = name.lower()
            values[name] = (*values.get(name, ()), value)
        return values

    def text(self, name: str) -> str | None:
        """A piece of metadata, joined by commas if it came more than once; bytes as hex."""
        values = self.metadata.get(name.lower())
        return None if values is None else ",".join(map(_as_text, values))


@dataclass(frozen=True, slots=True)
class Status:
    """How a call ended, for ``count_when``.

    ``code`` is CANCELLED if the client left a stream, also because of its deadline. ``error`` is
    what the handler raised, except by ``abort``. There is no status for a call that was
    cancelled before its handler responded: it stays counted.
    """

    code: grpc.StatusCode
    call: Call
    error: BaseException | None = None

    @property
    def failed(self) -> bool:
        """Whether the server is to blame."""
        return self.code in _FAILURES


def by_peer(call: Call) -> str:
    """The caller's address; an IPv6 one counts together with its /64."""
    address = call.address
    return UNKNOWN if address is None else "ip:" + network_of(address, keys.GROUPS)


def by_method(call: Call) -> str:
    """The method: all callers together."""
    return f"method:{call.method}"


@example("by_metadata('x-api-key')")
def by_metadata(
    name: str,
    *,
    secret: bool = False,
    otherwise: KeyFunction | None = by_peer,
    salt: str = "",
) -> KeyFunction:
    """The value of a piece of metadata; where there is none, the caller's address.

    A ``secret`` is hashed: it is neither stored nor logged. Metadata with several values counts
    as absent, as it is unknown which of them the handler uses.
    """
    if not isinstance(name, str) or not name or not name.isascii():
        raise ValueError(f"metadata has ASCII names, such as 'x-api-key', not {name!r:.100}")
    if otherwise is not None:
        check_key_function(otherwise, "otherwise", _NAMES, "by_metadata({})")
    lower_name = name.lower()

    def find(call: Call) -> Key | Awaitable[Key]:
        values = call.metadata.get(lower_name, ())
        if len(values) == 1 and values[0]:
            value = _as_text(values[0])
            if secret:
                return keys.tagged("key", keys.hashed(value, salt))
            return keys.tagged(f"metadata:{lower_name}", value)
        return None if otherwise is None else otherwise(call)

    return find


def as_key(key: Any) -> KeyFunction:
    """A key function that never returns nothing: where the user's does, it is the address."""
    check_key_function(key, "key", _NAMES, "by_metadata({})")
    return key if key in (by_peer, by_method) else or_address(key, by_peer)


# What rules can be counted by, by the names of their keys.
DIMENSIONS: Mapping[str, Dimension[Call]] = {
    ADDRESS: lambda call: call.address or "unknown",
    "method": lambda call: call.method,
    "service": lambda call: call.service,
}


def family(name: str) -> Dimension[Call] | None:
    """``metadata:NAME``, for every name."""
    kind, _, argument = name.partition(":")
    lower_name = argument.strip().lower()
    return (lambda call: call.text(lower_name)) if kind == "metadata" and lower_name else None


def address_of(peer: str) -> str | None:
    """The address within what gRPC calls a peer; None if it has none."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return None
    host = unquote(rest).rpartition(":")[0]
    address = as_address(host.removeprefix("[").removesuffix("]"))
    return None if address is None else str(address).partition("%")[0]


def _as_text(value: Value) -> str:
    return value if isinstance(value, str) else value.hex()
