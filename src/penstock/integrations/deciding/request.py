"""Request: what key, cost and limit functions are given, the same in every framework.

Each framework has its own subclass, which says where things are. ``native`` is the
framework's own object, for all that is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http.cookies import SimpleCookie
from typing import Any

from penstock.integrations.deciding.identity import NOBODY_TRUSTED, Trust
from penstock.integrations.deciding.paths import plain

# Stands for a cookie that came with different values.
SEVERAL = "(several)"


class Request:
    """A request that asks to go ahead.

    - ``method``: in upper case; ``path``: decoded, without the query; ``rule_path``: the same
      for decisions, see `penstock.integrations.deciding.paths`
    - ``peer``: the address at the other end of the connection; None for a Unix socket
    - ``client``: the address of who asks: the peer, or what trusted proxies say
    - ``header(name)``, ``first(name)``, ``cookies``: None and absent where there is none
    - ``user``: who is logged in, as text; ``route``: the template of the path, such as
      ``/users/{id}``; both None where the framework does not know yet
    - ``native``: the framework's own object
    """

    method: str
    path: str
    native: Any
    trust: Trust = NOBODY_TRUSTED

    @property
    def rule_path(self) -> str:
        """The path to decide on; an `AmbiguousText` if servers may read it in other ways."""
        return plain(self.path)

    @property
    def peer(self) -> str | None:
        raise NotImplementedError

    def header(self, name: str) -> str | None:
        """A header, by its name in any case; joined by commas if it came more than once."""
        raise NotImplementedError

    def first(self, name: str) -> str | None:
        """A header of which there should be one: as the application reads it.

        ASGI frameworks take the first. If what came after it changed a key, whoever has one
        could have as many limits as it likes. WSGI servers have joined them already.
        """
        return self.header(name.lower())

    @property
    def user(self) -> str | None:
        return None

    @property
    def route(self) -> str | None:
        return None

    @property
    def host(self) -> str | None:
        return self.header("host")

    @property
    def client(self) -> str | None:
        """The address of who asks, as text; None if there is none."""
        return self.trust.client(self.peer, self.header)

    @cached_property
    def cookies(self) -> Mapping[str, str]:
        """By name. One that came with different values is `SEVERAL`.

        Some frameworks take the first, others the last: nobody here knows who it is.
        """
        decode = SimpleCookie().value_decode
        found: dict[str, str] = {}
        for piece in (self.header("cookie") or "").split(";"):
            name, equals, quoted = piece.partition("=")
            if equals:
                value = decode(quoted.strip())[0]
                name = name.strip()
                if found.setdefault(name, value) != value:
                    found[name] = SEVERAL
        return found

    @property
    def is_preflight(self) -> bool:
        """Whether a browser asks if it may ask (CORS). It never does so with a body."""
        return (
            self.method == "OPTIONS"
            and self.header("origin") is not None
            and self.header("access-control-request-method") is not None
            and (self.header("content-length") or "0") == "0"
            and self.header("transfer-encoding") is None
        )

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path:.100} from {self.client}>"


@dataclass(frozen=True, slots=True)
class Response:
    """What the application answered, for ``count_when``.

    ``error`` is what the handler raised; then ``status`` is 500. There is none of a failure
    that came of a client that left: such a request stays counted, and nobody is asked.
    """

    status: int
    headers: Mapping[str, str]
    error: BaseException | None = None

    @property
    def failed(self) -> bool:
        """Whether the server is to blame: it raised, or answered 5xx."""
        return self.error is not None or self.status >= 500


def identity_of(user: object) -> str | None:
    """Text for a user object of any framework; None for who is not logged in."""
    if user is None or isinstance(user, str):
        return user or None
    if getattr(user, "is_authenticated", True) is False:
        return None
    for name in ("identity", "pk", "id", "username", "name"):
        try:
            value = getattr(user, name, None)
        except NotImplementedError:  # as Starlette's BaseUser says
            continue
        if callable(value):
            value = value()
        if value is not None and value != "":
            return str(value)
    return None
