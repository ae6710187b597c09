"""Key functions: from a `Request` to the key that is counted.

Every key begins with its kind (``ip:``, ``user:``, ...), so that nobody can choose a name that
looks like another client's address. If a request has no such value, ``otherwise`` gives the key.
By default that is `by_ip`: a client cannot avoid a limit by leaving out a header.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from inspect import isawaitable
from typing import Any, TypeVar

from penstock.integrations.deciding.key_functions import (
    check_called,
    check_key_function,
    example,
    or_address,
)
from penstock.integrations.deciding.request import SEVERAL, Request
from penstock.keys import join
from penstock.rules.lists import network_of

R = TypeVar("R")
L = TypeVar("L")
Key = str | None
KeyFunction = Callable[[Request], Key | Awaitable[Key]]

# Prefix lengths of addresses that share a counter: all of an IPv4 address, and /64 of an IPv6
# address, the least that a single customer gets.
GROUPS = (32, 64)
# Longer values are hashed: a key is kept for every value that a client sends.
LONGEST = 128
_METHODS = {name: name for name in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}
_METHODS["HEAD"] = "GET"
# By what users write instead of a function.
_NAMES = {
    "ip": "by_ip", "address": "by_ip", "remote_address": "by_ip", "user": "by_user",
    "route": "by_route", "path": "by_route", "api_key": "by_api_key()",
}  # fmt: skip


def by_ip(request: Request) -> str:
    """The client's address; an IPv6 one counts together with its /64."""
    client = request.client
    return "ip:unknown" if client is None else "ip:" + network_of(client, GROUPS)


@example("by_header('x-tenant')")
def by_header(name: str, otherwise: KeyFunction | None = by_ip) -> KeyFunction:
    """The value of a header. For secrets, use `by_api_key`."""
    lower_name = header_name(name)
    return _or(lambda request: tagged(f"header:{lower_name}", request.first(lower_name)), otherwise)


@example("by_api_key()")
def by_api_key(
    header: str = "x-api-key", otherwise: KeyFunction | None = by_ip, salt: str = ""
) -> KeyFunction:
    """The client's API key, hashed: it is neither stored nor logged."""
    lower_name = header_name(header)
    return _or(lambda request: tagged("key", hashed(request.first(lower_name), salt)), otherwise)


@example("by_cookie('session')")
def by_cookie(name: str, otherwise: KeyFunction | None = by_ip, salt: str = "") -> KeyFunction:
    """The value of a cookie, hashed, as it may be a session's secret.

    A client that sends two of that name is counted by address, also without ``otherwise``.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"a cookie's name is a non-empty str, not {name!r:.100}")

    def find(request: Request) -> str | None:
        value = request.cookies.get(name)
        return by_ip(request) if value == SEVERAL else tagged("cookie", hashed(value, salt))

    return _or(find, otherwise)


def by_user(request: Request) -> str:
    """The user who is logged in, or else the client's address."""
    return tagged("user", request.user) or by_ip(request)


def by_route(request: Request) -> str:
    """The route's template: ``/users/1`` and ``/users/2`` are both ``/users/{id}``.

    Paths without a route share one key. HEAD counts as GET, and all unknown methods count
    together, as clients could invent any number of them.
    """
    method = _METHODS.get(request.method, "-")
    return f"route:{method} {request.route or '-'}"


@example("by_region('cf-ipcountry')")
def by_region(header: str, otherwise: KeyFunction | None = by_ip) -> KeyFunction:
    """The region that a trusted proxy writes into a header, such as ``cf-ipcountry``.

    From any other client the header is ignored.
    """
    lower_name = header_name(header)
    return _or(lambda request: tagged("region", trusted_header(request, lower_name)), otherwise)


@example("combined(by_user, by_route)")
def combined(*functions: Callable[[R], Key | Awaitable[Key]]) -> Callable[[R], Any]:
    """A key of several: ``combined(by_user, by_route)`` counts each user on each route."""
    if not functions or not all(callable(function) for function in functions):
        raise TypeError("combined takes functions from a request to a key, such as by_ip")
    for function in functions:
        check_called(function)

    def combine(request: R) -> Any:
        parts: list[str] = []
        remaining = iter(functions)
        for function in remaining:
            key = function(request)
            if isawaitable(key):
                return _combine_async(request, parts, key, remaining)
            if key is None:
                return None
            parts.append(str(key))
        return join(parts)

    return combine


async def _combine_async(
    request: R,
    parts: list[str],
    waiting: Awaitable[Key],
    remaining: Iterator[Callable[[R], Key | Awaitable[Key]]],
) -> Key:
    """The same, beginning with the first key that has to be awaited."""
    key = await waiting
    while key is not None:
        parts.append(str(key))
        function = next(remaining, None)
        if function is None:
            return join(parts)
        result = function(request)
        key = await result if isawaitable(result) else result
    return None


def _or(first: Callable[[Request], Key], otherwise: KeyFunction | None) -> KeyFunction:
    if otherwise is None:
        return first
    check_key_function(otherwise, "otherwise", _NAMES, "by_header({})")

    def find(request: Request) -> Key | Awaitable[Key]:
        return first(request) or otherwise(request)

    return find


def as_key(key: Any, option: str = "key", before: str | None = None) -> KeyFunction:
    """A key function that never returns nothing: where the user's does, it is the address."""
    check_key_function(key, option, _NAMES, "by_header({})", before)
    return key if key in (by_ip, by_user, by_route) else or_address(key, by_ip)


def as_keys(limits: Mapping[Any, L]) -> dict[KeyFunction, L]:
    """`as_key` for each key of a dict of limits."""
    return {as_key(key, "a key in limit", ""): limit for key, limit in limits.items()}


def tagged(kind: str, value: str | None) -> str | None:
    """``kind:value``; None if there is no value. Long values are hashed."""
    if not value:
        return None
    return f"{kind}:{value}" if len(value) <= LONGEST else f"{kind}#{hashed(value)}"


def hashed(value: str | None, salt: str = "") -> str | None:
    """A hash that is the same in every process."""
    if not value:
        return None
    secret = value.encode("utf-8", "surrogatepass")
    key = hashlib.blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    return hashlib.blake2b(secret, digest_size=16, key=key).hexdigest()


def trusted_header(request: Request, header: str) -> str | None:
    """The last value of a header that a trusted proxy writes; from other peers it is ignored."""
    if not request.trust.trusts(request.peer):
        return None
    # A proxy that adds its own to what a client sent adds it at the end.
    return (request.header(header) or "").rpartition(",")[2].strip() or None


def header_name(header: object) -> str:
    if not isinstance(header, str) or not header or not header.isascii() or ":" in header:
        raise ValueError(f"a header's name is ASCII text, such as 'x-api-key', not {header!r:.100}")
    return header.lower()
