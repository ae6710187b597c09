"""Who calls what, and how it ended; and the functions that make a key of it.

gRPC writes the other end of a connection in its own way::

    ipv4:203.0.113.7:51234      ipv6:[2001:db8::1]:51234      ipv6:%5B::1%5D:51234      unix:

Keys of addresses are spelled as in the web frameworks, so that one limit may count both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import grpc

from penstock.integrations.deciding import keys
from penstock.integrations.deciding.descriptors import ADDRESS, Dimension
from penstock.integrations.deciding.identity import NOBODY_TRUSTED, Trust
from penstock.rules.lists import as_address, network_of

Value = str | bytes
Found = str | None
KeyFunction = Callable[["Call"], Found | Awaitable[Found]]

UNKNOWN = "ip:unknown"
# Codes by which a server says that the fault is its own.
_FAILURES = {
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.UNIMPLEMENTED,
}


@dataclass(frozen=True)
class Call:
    """A call that asks to go ahead.

    - ``method``: ``"/shop.Orders/Place"``, of which ``service`` is ``"shop.Orders"`` and
      ``name`` is ``"Place"``
    - ``peer``: the other end of the connection, as gRPC writes it
    - ``address``: the address of who calls, without a port: the peer's, or what trusted
      proxies say; None for a Unix socket
    - ``metadata``: names in lower case; each may have come more than once
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

    ``code`` is CANCELLED where the client went away from a stream, also because its time was
    up. ``error`` is what the handler raised, if that was not by ``abort``. There is no status of
    a call that was cancelled before its handler answered: it stays counted.
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


def by_metadata(
    name: str,
    *,
    secret: bool = False,
    otherwise: KeyFunction | None = by_peer,
    salt: str = "",
) -> KeyFunction:
    """The value of a piece of metadata; where there is none, the caller's address.

    A ``secret`` is hashed: it is neither stored nor logged. What came more than once counts
    as absent, as nobody can tell which of them the handler believes.
    """
    if not isinstance(name, str) or not name or not name.isascii():
        raise ValueError(f"metadata has ASCII names, such as 'x-api-key', not {name!r:.100}")
    if otherwise is not None and not callable(otherwise):
        raise TypeError(f"otherwise is a function from a call to a key, not {otherwise!r:.100}")
    wanted = name.lower()

    def find(call: Call) -> Found | Awaitable[Found]:
        values = call.metadata.get(wanted, ())
        if len(values) == 1 and values[0]:
            value = _as_text(values[0])
            if secret:
                return keys.tagged("key", keys.hashed(value, salt))
            return keys.tagged(f"metadata:{wanted}", value)
        return None if otherwise is None else otherwise(call)

    return find


def combined(*functions: KeyFunction) -> KeyFunction:
    """A key of several: ``combined(by_peer, by_method)`` counts each caller on each method."""
    join: Callable[..., Any] = keys.combined
    joined: KeyFunction = join(*functions)
    return joined


# What rules can be counted by, by the names of their keys.
DIMENSIONS: Mapping[str, Dimension[Call]] = {
    ADDRESS: lambda call: call.address or "unknown",
    "method": lambda call: call.method,
    "service": lambda call: call.service,
}


def family(name: str) -> Dimension[Call] | None:
    """``metadata:NAME``, for every name."""
    kind, _, argument = name.partition(":")
    wanted = argument.strip().lower()
    return (lambda call: call.text(wanted)) if kind == "metadata" and wanted else None


def address_of(peer: str) -> str | None:
    """The address within what gRPC calls a peer; None if it has none."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return None
    host = unquote(rest).rpartition(":")[0]
    address = as_address(host.removeprefix("[").removesuffix("]"))
    return None if address is None else str(address).partition("%")[0]


def as_pairs(metadata: Iterable[Any] | None) -> tuple[tuple[str, Value], ...]:
    return tuple([(name, value) for name, value in metadata or ()])


def _as_text(value: Value) -> str:
    return value if isinstance(value, str) else value.hex()
