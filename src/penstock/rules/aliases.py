"""Two names of one key: the client's address is ``remote_address``, as in Envoy, or ``ip``.

A domain whose rules use one of the names is matched under the other one as well. If its rules use
both, or a request gives both, each name means itself: nothing is counted twice. Lists of addresses
apply under both names in any case.

The names are resolved when rules and switches are prepared, so that matching costs the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from penstock.rules.lists import ValueList

V = TypeVar("V")
Pair = tuple[str, str]

ADDRESS = "remote_address"
# Other names, by the name that they stand for.
ALIASES = {"ip": ADDRESS}
# All names of the client's address.
ADDRESSES = (ADDRESS, *ALIASES)


def names_of(key: str) -> tuple[str, ...]:
    """All names of a key."""
    return ADDRESSES if key in ADDRESSES else (key,)


def same_key(one: str, other: str) -> bool:
    """Whether both names mean the same key."""
    return other in names_of(one)


def alias_for(keys: Iterable[str]) -> tuple[str, str] | None:
    """The name that rules with these keys use, and its other name, which they do not use."""
    used = {*ADDRESSES}.intersection(keys)
    unused = {*ADDRESSES} - used
    return (used.pop(), unused.pop()) if used and unused else None


def gives_both(descriptors: Sequence[Sequence[Pair]], names: tuple[str, str]) -> bool:
    """Whether a request has pairs of both names."""
    given = {key for pairs in descriptors for key, _ in pairs if key in names}
    return len(given) == len(names)


def lists_by_name(lists: Mapping[str, ValueList]) -> Mapping[str, ValueList]:
    """Lists by key, with those of addresses under each of their names."""
    entries = [entry for name in ADDRESSES if name in lists for entry in lists[name].entries]
    if not entries:
        return lists
    return {**lists, **dict.fromkeys(ADDRESSES, ValueList(entries))}


def pairs_by_name(pairs: Mapping[Pair, V]) -> Mapping[Pair, V]:
    """Values by pair, with those of addresses under each of their names.

    If there are values for both names, each keeps its own.
    """
    more = {
        (name, value): found
        for (key, value), found in pairs.items()
        if key in ADDRESSES
        for name in ADDRESSES
    }
    return {**more, **pairs} if more else pairs
