"""Access: which requests the admin API admits. Security-critical.

::

    with a token               valid: admitted. invalid: 401, counted; after ten of them 429
    with a session's cookie    valid, and the request comes from the page itself: admitted
    without, from this host    admitted if Host is a name of this host, so that a web page
                               whose own name resolves to this host is not (DNS rebinding)
    without, from elsewhere    401

From this host means: over loopback or a Unix socket, and not through a proxy. A web page in a
local browser could send a request without reading the response, so requests that a browser
marks as cross-site are denied, too. No response allows another origin to read it.

What a browser can be made to send by itself, a cookie or a request from this host, can change
something only as JSON and from the same origin: forms and links of other sites cannot send that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.admin.errors import RequestRejected
from penstock.admin.sessions import Session, Sessions, cookie_of
from penstock.admin.tokens import ADMIN, Token, Tokens
from penstock.clock import Clock
from penstock.limiter import Limiter
from penstock.limits import Limit
from penstock.rules.lists import as_address, network_of
from penstock.stores.memory import MemoryStore
from penstock.wires.http.messages import HttpRequest

LOCAL = "local"
FAILURES = "10/minute lockout 1m"
# How many addresses with failures are remembered: about 100 bytes each.
MOST_FAILING = 100_000
# The prefix that counts as one client: an IPv6 customer has at least a /64.
_NETWORKS = (32, 64)
UNIX_PEER = "unix"
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_PROXIED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]/@\s]+)(?::[0-9]{1,5})?")
_BEARER = re.compile(r"(?i)bearer +(\S+)")


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: ``name`` of its token and the start of its digest, or `LOCAL`.

    ``session`` if it is a browser with a cookie.
    """

    peer: str
    name: str
    digest: str | None = None
    role: str = ADMIN
    session: Session | None = None

    @property
    def may_change(self) -> bool:
        return self.role == ADMIN


class Denied(RequestRejected):
    """The request is denied. ``silent`` if it is already in the audit log."""

    silent = False


class Access:
    """Admits or denies every request before anything else reads it.

    ``always`` requires a token on loopback, too. ``names``: other names of this host that
    requests without a token may have in Host.
    """

    def __init__(
        self,
        tokens: Tokens | None = None,
        *,
        always: bool = False,
        names: Iterable[str] = (),
        failures: Limit | str = FAILURES,
        clock: Clock | None = None,
    ) -> None:
        self.tokens = Tokens() if tokens is None else tokens
        if always and not self.tokens:
            raise ValueError("a token is always required, but none is configured")
        if isinstance(names, str):
            raise TypeError(f"names must be a list of names, such as [{names!r}]")
        self._always = always
        self._names = _LOCAL_NAMES | {_checked_name(name) for name in names}
        self._failures = Limiter(failures, MemoryStore(MOST_FAILING, clock), enabled=True)
        self.sessions = Sessions() if clock is None else Sessions(clock)

    def admit(self, request: HttpRequest) -> Caller:
        """The caller of a request; raises `Denied`."""
        peer = UNIX_PEER if request.peer is None else request.peer
        authorization = request.header("authorization")
        if authorization is not None and self.tokens:
            token = self._token(_failure_key(request), authorization)
            return Caller(peer, token.name, token.digest, token.role)
        session = self._session(request)
        if session is not None:
            _check_site(request)
            token = session.token
            return Caller(peer, token.name, token.digest, token.role, session)
        if self._always or not is_local(request):
            message = "a token is required: Authorization: Bearer ..."
            raise self._failed(_failure_key(request), message)
        self._check_browser(request)
        return Caller(peer, LOCAL)

    def _token(self, key: str, authorization: str) -> Token:
        failures = self._failures.peek(key)
        if not failures:
            raise _locked_out(failures.retry_after, silent=True)
        bearer = _BEARER.fullmatch(authorization)
        token = self.tokens.find(bearer[1]) if bearer else None
        if token is None:
            raise self._failed(key, "the token is invalid")
        return token

    def log_in(self, request: HttpRequest, secret: str) -> str:
        """The id of a new session, for a token; raises `Denied`, and counts failures."""
        _check_site(request)
        return self.sessions.begin(self._token(_failure_key(request), f"Bearer {secret}"))

    def log_out(self, request: HttpRequest) -> None:
        session_id = cookie_of(request.header("cookie"))
        if session_id is not None:
            self.sessions.end(session_id)

    def _session(self, request: HttpRequest) -> Session | None:
        session_id = cookie_of(request.header("cookie"))
        return None if session_id is None else self.sessions.find(session_id)

    def _failed(self, key: str, message: str) -> Denied:
        """Count a failure."""
        decision = self._failures.hit(key)
        if not decision:
            return _locked_out(decision.retry_after, silent=True)
        if decision.last:
            self._failures.hit(key)  # lock out now, not at the next try
            return _locked_out(self._failures.peek(key).retry_after)
        return Denied(401, message, headers=[("WWW-Authenticate", 'Bearer realm="penstock"')])

    def _check_browser(self, request: HttpRequest) -> None:
        host = (request.header("host") or "").lower()
        match = _HOST.fullmatch(host)
        if match is None or match[1] not in self._names:
            raise Denied(
                403, "without a token, Host must be localhost, 127.0.0.1, [::1] or a name that was"
                " configured: another name may be a DNS rebinding attack",
            )  # fmt: skip
        _check_site(request)


def _check_site(request: HttpRequest) -> None:
    """Deny what a page of another origin has sent, or could have sent."""
    host = (request.header("host") or "").lower()
    origin = request.header("origin")
    if origin is not None and origin.lower().partition("://")[2] != host:
        raise Denied(403, "requests from a page of another origin are denied")
    if (request.header("sec-fetch-site") or "none") not in ("none", "same-origin"):
        raise Denied(403, "requests from a page of another site are denied")
    by_browser = origin is not None or request.header("cookie") is not None
    if by_browser and request.body and not _is_json(request):
        raise Denied(415, "a page sends its changes as content-type: application/json")


def _is_json(request: HttpRequest) -> bool:
    content_type = (request.header("content-type") or "").partition(";")[0]
    return content_type.strip().lower() == "application/json"


def is_local(request: HttpRequest) -> bool:
    """Whether it comes from this host, and not through a proxy."""
    return not is_proxied(request) and (request.peer is None or is_loopback(request.peer))


def is_proxied(request: HttpRequest) -> bool:
    return any(name in _PROXIED for name, _ in request.headers)


def is_loopback(address: str) -> bool:
    parsed = as_address(address)
    return parsed is not None and parsed.is_loopback


def _failure_key(request: HttpRequest) -> str:
    """The key that failures count against. Clients of a proxy do not lock out its host."""
    peer = UNIX_PEER if request.peer is None else network_of(request.peer, _NETWORKS)
    return f"{peer} by proxy" if is_proxied(request) else peer


def _locked_out(seconds: float | None, silent: bool = False) -> Denied:
    after = str(max(1, math.ceil(seconds or 1)))
    denied = Denied(429, "too many failures: locked out", headers=[("Retry-After", after)])
    denied.silent = silent
    return denied


def _checked_name(name: object) -> str:
    match = _HOST.fullmatch(name.lower()) if isinstance(name, str) else None
    if match is None or match[1] != match[0]:
        raise ValueError(
            f"a name must be a host without a port, such as 'admin.local', not {name!r:.100}"
        )
    return match[1]
