"""Whose request it is: functions from a `Request` to the key that is counted.

Every key says what kind it is (``ip:``, ``user:``, ...), so that nobody can choose a name
that looks like another's address. A function that finds nothing asks ``otherwise``, which
is `by_ip`: leaving a header away is no way round a limit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator
from inspect import isawaitable
from typing import Any

from penstock.integrations.deciding.request import SEVERAL, Request
from penstock.keys import join
from penstock.rules.lists import network_of

Found = str | None
KeyFunction = Callable[[Request], Found | Awaitable[Found]]

# Addresses that share a counter: each IPv4 address has its own, an IPv6 one shares its /64,
# as that is the least that a single customer is given.
GROUPS = (32, 64)
# Longer values are hashed: a key is kept for every value that a client sends.
LONGEST = 128
_METHODS = {name: name for name in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}
_METHODS["HEAD"] = "GET"


def by_ip(request: Request) -> str:
    """The client's address; an IPv6 one counts together with its /64."""
    client = request.client
    return "ip:unknown" if client is None else "ip:" + network_of(client, GROUPS)


def by_header(name: str, otherwise: KeyFunction | None = by_ip) -> KeyFunction:
    """The value of a header, as it came. For secrets, take `by_api_key`."""
    wanted = _name(name)
    return _or(lambda request: tagged(f"header:{wanted}", request.first(wanted)), otherwise)


def by_api_key(
    header: str = "x-api-key", otherwise: KeyFunction | None = by_ip, salt: str = ""
) -> KeyFunction:
    """The key that a client shows, hashed: it is neither stored nor logged."""
    wanted = _name(header)
    return _or(lambda request: tagged("key", hashed(request.first(wanted), salt)), otherwise)


def by_cookie(name: str, otherwise: KeyFunction | None = by_ip, salt: str = "") -> KeyFunction:
    """The value of a cookie, hashed: who knows it could be the user.

    Who shows two of that name is counted by address, also without an ``otherwise``.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"a cookie's name is a non-empty str, not {name!r:.100}")

    def find(request: Request) -> str | None:
        value = request.cookies.get(name)
        return by_ip(request) if value == SEVERAL else tagged("cookie", hashed(value, salt))

    return _or(find, otherwise)


def by_user(request: Request) -> str:
    """Who is logged in; the client's address for those who are not."""
    return tagged("user", request.user) or by_ip(request)


def by_route(request: Request) -> str:
    """The route's template: ``/users/1`` and ``/users/2`` are both ``/users/{id}``.

    Paths that lead nowhere share one key. HEAD counts as GET, which answers it, and methods
    that clients make up count together: there is no end of them.
    """
    method = _METHODS.get(request.method, "-")
    return f"route:{method} {request.route or '-'}"


def by_region(header: str, otherwise: KeyFunction | None = by_ip) -> KeyFunction:
    """The region that a trusted proxy writes into a header, such as ``cf-ipcountry``.

    From anybody else the header is not believed.
    """
    wanted = _name(header)
    return _or(lambda request: tagged("region", region_of(request, wanted)), otherwise)


def combined(*functions: KeyFunction) -> KeyFunction:
    """A key of several: ``combined(by_user, by_route)`` counts each user on each route."""
    if not functions or not all(callable(function) for function in functions):
        raise TypeError("combined takes functions from a request to a key, such as by_ip")
    return _Combined(functions)


class _Combined:
    """Awaits only if one of them has to."""

    def __init__(self, functions: tuple[KeyFunction, ...]) -> None:
        self._functions = functions

    def __call__(self, request: Request) -> Any:
        parts: list[str] = []
        functions = iter(self._functions)
        for function in functions:
            key = function(request)
            if isawaitable(key):
                return _combine_async(request, parts, key, functions)
            if key is None:
                return None
            parts.append(str(key))
        return join(parts)


async def _combine_async(
    request: Request,
    parts: list[str],
    waiting: Awaitable[Found],
    functions: Iterator[KeyFunction],
) -> Found:
    """The same, from the first key on that has to be awaited."""
    key = await waiting
    while key is not None:
        parts.append(str(key))
        function = next(functions, None)
        if function is None:
            return join(parts)
        result = function(request)
        key = await result if isawaitable(result) else result
    return None


def _or(first: Callable[[Request], Found], otherwise: KeyFunction | None) -> KeyFunction:
    if otherwise is None:
        return first
    if not callable(otherwise):
        raise TypeError(f"otherwise is a function from a request to a key, not {otherwise!r:.100}")

    def find(request: Request) -> Found | Awaitable[Found]:
        return first(request) or otherwise(request)

    return find


def tagged(kind: str, value: str | None) -> str | None:
    """``kind:value``; None for nothing. What is too long to keep is hashed."""
    if not value:
        return None
    return f"{kind}:{value}" if len(value) <= LONGEST else f"{kind}#{hashed(value)}"


def hashed(value: str | None, salt: str = "") -> str | None:
    """The same for the same value everywhere, and not to be turned back."""
    if not value:
        return None
    secret = value.encode("utf-8", "surrogatepass")
    key = hashlib.blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    return hashlib.blake2b(secret, digest_size=16, key=key).hexdigest()


def region_of(request: Request, header: str) -> str | None:
    if not request.trust.trusts(request.peer):
        return None
    # A proxy that adds its own to what a client sent adds it at the end.
    return (request.header(header) or "").rpartition(",")[2].strip() or None


def _name(header: object) -> str:
    if not isinstance(header, str) or not header or not header.isascii() or ":" in header:
        raise ValueError(f"a header's name is ASCII text, such as 'x-api-key', not {header!r:.100}")
    return header.lower()
