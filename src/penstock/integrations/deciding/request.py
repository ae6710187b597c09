"""Request and Response: the arguments of users' functions, the same in every framework.

Each framework has its own subclass of `Request`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qsl

from penstock.integrations.deciding.identity import NOBODY_TRUSTED, Trust
from penstock.integrations.deciding.paths import plain

# Stands for a cookie or a query parameter with different values.
SEVERAL = "(several)"


class _Elsewhere:
    """An attribute that a request does not have, and what to write in its place."""

    def __init__(self, instead: str) -> None:
        self._instead = instead

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, request: object, owner: type) -> NoReturn:
        raise AttributeError(
            f"a Request has no {self._name!r}: write request.{self._instead}", name=self._name
        )


class Request:
    """A request to be checked.

    - ``method``: in upper case; ``path``: decoded, without the query; ``rule_path``: the same
      for decisions, see `penstock.integrations.deciding.paths`
    - ``peer``: the address at the other end of the connection; None for a Unix socket
    - ``client``: the client's address: the peer, or the one that trusted proxies report
    - ``header(name)``, ``first(name)``, ``cookies``, ``query``
    - ``user``: who is logged in, as text; ``route``: the template of the path, such as
      ``/users/{id}``; both None if the framework does not know yet
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
        """A header, by its name in any case; several values are joined by commas."""
        raise NotImplementedError

    def first(self, name: str) -> str | None:
        """The value of a header as the application reads it.

        ASGI frameworks use the first. If the others changed a key, a client with one valid
        value could get any number of keys. WSGI servers have joined them already.
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
        """The client's address as text; None if there is none."""
        return self.trust.client(self.peer, self.header)

    @cached_property
    def cookies(self) -> Mapping[str, str]:
        """By name. A cookie with different values is `SEVERAL`.

        Some frameworks use the first, others the last.
        """
        decode = SimpleCookie().value_decode
        cookies: dict[str, str] = {}
        for piece in (self.header("cookie") or "").split(";"):
            name, equals, quoted = piece.partition("=")
            if equals:
                value = decode(quoted.strip())[0]
                name = name.strip()
                if cookies.setdefault(name, value) != value:
                    cookies[name] = SEVERAL
        return cookies

    @property
    def query_string(self) -> str:
        """What follows the ``?``, as it was sent."""
        return ""

    @cached_property
    def query(self) -> Mapping[str, str]:
        """Its parameters by name. One with different values is `SEVERAL`, as of `cookies`."""
        parameters: dict[str, str] = {}
        for name, value in parse_qsl(self.query_string, keep_blank_values=True):
            if parameters.setdefault(name, value) != value:
                parameters[name] = SEVERAL
        return parameters

    @property
    def is_preflight(self) -> bool:
        """Whether it is a CORS preflight request. These never have a body."""
        return (
            self.method == "OPTIONS"
            and self.header("origin") is not None
            and self.header("access-control-request-method") is not None
            and (self.header("content-length") or "0") == "0"
            and self.header("transfer-encoding") is None
        )

    if not TYPE_CHECKING:
        # Their own requests have these in many frameworks.
        headers = _Elsewhere("first('x-api-key')")
        META = _Elsewhere("first('x-api-key'), or native.META")
        remote_addr = _Elsewhere("client")
        ip = _Elsewhere("client")
        query_params = _Elsewhere("query")
        args = _Elsewhere("query")
        GET = _Elsewhere("query")
        url = _Elsewhere("path")

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path:.100} from {self.client}>"


@dataclass(frozen=True, slots=True)
class Response:
    """The application's response, for ``count_when``.

    ``error`` is what the handler raised; then ``status`` is 500. If the application failed
    because its client left, ``count_when`` is not called: the request stays counted.
    """

    status: int
    headers: Mapping[str, str]
    error: BaseException | None = None

    @property
    def failed(self) -> bool:
        """Whether the server failed: it raised, or responded with 5xx."""
        return self.error is not None or self.status >= 500


def identity_of(user: object) -> str | None:
    """Text for a user: an object of any framework, a number, or a row of a database.

    None if not logged in.
    """
    if user is None or isinstance(user, str):
        return user or None
    if isinstance(user, int):
        return str(user)
    if hasattr(user, "keys"):
        row: Any = user
        return str(row["id"]) if "id" in list(row.keys()) else None
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
