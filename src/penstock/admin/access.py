"""Access: who may use the admin API. A matter of security.

::

    a token was sent           right: in.   wrong: 401, counted, and after ten of them 429
    none, from this machine    in, if it was asked for by a name of this machine: a web page
                               that has its own name point here cannot get in
    none, from elsewhere       401

From this machine means: over loopback or a Unix socket, and not passed on by a proxy. A page
in a browser here could send a request without reading its answer: so what a browser marks
as coming from another site is refused, too. No answer allows another origin to read it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.admin.errors import Refused
from penstock.admin.tokens import Tokens
from penstock.clock import Clock
from penstock.limit import Limit
from penstock.limiter import Limiter
from penstock.rules.lists import as_address, network_of
from penstock.stores.memory import MemoryStore
from penstock.wires.http.messages import HttpRequest

LOCAL = "local"
FAILURES = "10/minute lockout 1m"
# Addresses that are remembered for failing: some 100 bytes each.
MOST_FAILING = 100_000
# Who shares an address with whom: an IPv6 customer has a network of 64 bits, at least.
_NETWORKS = (32, 64)
UNIX_PEER = "unix"
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_PROXIED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]/@\s]+)(?::[0-9]{1,5})?")
_BEARER = re.compile(r"(?i)bearer +(\S+)")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who it was: ``name`` of the token and the start of its digest, or `LOCAL`."""

    peer: str
    name: str
    digest: str | None = None


class Denied(Refused):
    """Not let in. ``silent`` where the record has it already."""

    silent = False


class Access:
    """Decides on every request before anything else looks at it.

    ``always`` asks for a token on loopback, too. ``names``: other names of this machine by
    which it may be asked without one.
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
            raise ValueError("a token is to be asked for always, and there is none")
        if isinstance(names, str):
            raise TypeError(f"names is a list of names, such as [{names!r}]")
        self._always = always
        self._names = _LOCAL_NAMES | {_checked_name(name) for name in names}
        self._failures = Limiter(failures, MemoryStore(MOST_FAILING, clock))

    def admit(self, request: HttpRequest) -> Caller:
        """Who asks; `Denied` if they may not."""
        peer = UNIX_PEER if request.peer is None else request.peer
        given = request.header("authorization")
        if given is not None and self.tokens:
            return self._by_token(_failing(request), peer, given)
        if self._always or not is_local(request):
            message = "a token is needed here: Authorization: Bearer ..."
            raise self._failed(_failing(request), message)
        self._check_browser(request)
        return Caller(peer, LOCAL)

    def _by_token(self, key: str, peer: str, given: str) -> Caller:
        look = self._failures.peek(key)
        if not look:
            raise _locked_out(look.retry_after, silent=True)
        bearer = _BEARER.fullmatch(given)
        found = self.tokens.find(bearer[1]) if bearer else None
        if found is None:
            raise self._failed(key, "the token is not right")
        return Caller(peer, *found)

    def _failed(self, key: str, message: str) -> Denied:
        """A failure that counts."""
        decision = self._failures.hit(key)
        if not decision:
            return _locked_out(decision.retry_after, silent=True)
        if decision.last:
            self._failures.hit(key)  # one too many: the door shuts now, not at the next try
            return _locked_out(self._failures.peek(key).retry_after)
        return Denied(401, message, headers=[("WWW-Authenticate", 'Bearer realm="penstock"')])

    def _check_browser(self, request: HttpRequest) -> None:
        host = (request.header("host") or "").lower()
        found = _HOST.fullmatch(host)
        if found is None or found[1] not in self._names:
            raise Denied(
                403, "without a token, ask for localhost, 127.0.0.1 or [::1], or for a name that"
                " the server was given: another name in the Host header may be somebody's trick",
            )  # fmt: skip
        origin = request.header("origin")
        if origin is not None and origin.lower().partition("://")[2] != host:
            raise Denied(403, "a page of another origin may not ask here")
        if (request.header("sec-fetch-site") or "none") not in ("none", "same-origin"):
            raise Denied(403, "a page of another site may not ask here")


def is_local(request: HttpRequest) -> bool:
    """From this machine, and not on somebody else's behalf."""
    return not is_proxied(request) and (request.peer is None or is_loopback(request.peer))


def is_proxied(request: HttpRequest) -> bool:
    return any(name in _PROXIED for name, _ in request.headers)


def is_loopback(address: str) -> bool:
    found = as_address(address)
    return found is not None and found.is_loopback


def _failing(request: HttpRequest) -> str:
    """By what failures are counted. Those behind a proxy do not shut its own machine out."""
    peer = UNIX_PEER if request.peer is None else network_of(request.peer, _NETWORKS)
    return f"{peer} by proxy" if is_proxied(request) else peer


def _locked_out(seconds: float | None, silent: bool = False) -> Denied:
    after = str(max(1, math.ceil(seconds or 1)))
    denied = Denied(429, "too many failures: locked out", headers=[("Retry-After", after)])
    denied.silent = silent
    return denied


def _checked_name(name: object) -> str:
    found = _HOST.fullmatch(name.lower()) if isinstance(name, str) else None
    if found is None or found[1] != found[0]:
        raise ValueError(
            f"a name is a host without a port, such as 'admin.local', not {name!r:.100}"
        )
    return found[1]
