"""Lists of values: exact ones and networks; and the networks that share one counter."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from penstock.errors import RulesError

# Addresses repeat, and parsing one takes longer than everything else here.
_KNOWN = 16_384
# The longest address, with a scope id. Longer texts are not cached.
_LONGEST = 72

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ValueList:
    """Exact texts, and networks in CIDR notation, in which an address is looked up.

    The cost does not grow with the number of entries: texts are hashed, and so are networks, in
    one table for each prefix length.
    """

    __slots__ = ("_networks", "entries", "texts")

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self.entries = tuple(dict.fromkeys(entries))
        tables: dict[tuple[int, int], set[int]] = {}
        texts: set[str] = set()
        for entry in self.entries:
            network = as_network(entry)
            if network is None:
                texts.add(entry)
            else:
                shift = network.max_prefixlen - network.prefixlen
                table = tables.setdefault((network.version, shift), set())
                table.add(int(network.network_address) >> shift)
        self.texts = frozenset(texts)
        self._networks = tuple((*where, frozenset(table)) for where, table in tables.items())

    def __contains__(self, value: str) -> bool:
        if value in self.texts:
            return True
        if not self._networks:
            return False
        address = as_address(value)
        if address is None:
            return False
        number, version = int(address), address.version
        return any(
            version == of and number >> shift in table for of, shift, table in self._networks
        )

    def __bool__(self) -> bool:
        return bool(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"ValueList({list(self.entries)!r})"


def as_network(text: str) -> Network | None:
    """A network in CIDR notation, or a single address; None for other texts, such as paths."""
    address, slash, length = text.partition("/")
    parsed = as_address(address)
    if parsed is None:
        return None
    if not slash:
        return ipaddress.ip_network(parsed)
    if not length.isascii() or not length.isdigit():
        return None
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise RulesError(f"{text!r} is no network: its length is too large") from None
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is not None and network.prefixlen >= 96:
        return ipaddress.ip_network((mapped, network.prefixlen - 96))
    return network


def as_address(text: str) -> Address | None:
    """An address, with IPv4-mapped IPv6 as IPv4; None for other texts."""
    return _as_address(text) if len(text) <= _LONGEST else None


@lru_cache(_KNOWN)
def _as_address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped


def network_of(value: str, lengths: tuple[int, int]) -> str:
    """The network whose addresses share a counter; other values are returned as they are."""
    return _network_of(value, lengths) if len(value) <= _LONGEST else value


@lru_cache(_KNOWN)
def _network_of(value: str, lengths: tuple[int, int]) -> str:
    address = as_address(value)
    if address is None:
        return value
    bits, length = address.max_prefixlen, lengths[0 if address.version == 4 else 1]
    start = int(address) >> (bits - length) << (bits - length)
    return f"{type(address)(start)}/{length}"
