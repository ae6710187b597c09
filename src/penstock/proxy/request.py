"""A request to the proxy: what the rules see, and what is forwarded."""

from __future__ import annotations

import re

from penstock.integrations.deciding.paths import decoded, plain_raw
from penstock.integrations.deciding.request import Request
from penstock.wires.http.framing import (
    NONE,
    BadMessage,
    Field,
    check_host,
    check_version,
    is_host,
    request_length,
)

# Methods that can be repeated safely (RFC 9110, 9.2.2).
IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PROPFIND", "REPORT", "SEARCH"})
_SCHEMES = (b"http://", b"https://")
_FIELD_NAME = re.compile(rb"[A-Za-z0-9-]+")


class ProxyRequest(Request):
    """The head of a request. ``native`` is itself; raises `BadMessage`.

    ``target`` is forwarded unchanged; for paths that servers could read in several ways see
    `penstock.integrations.deciding.paths`. ``fields`` are those whose names consist of letters,
    digits and hyphens: for WSGI and CGI, ``X_Forwarded_For`` is the same as ``X-Forwarded-For``.
    """

    def __init__(
        self,
        method: str,
        target: bytes,
        version: str,
        fields: list[Field],
        peer: str | None,
        scheme: str = "http",
    ) -> None:
        self.native = self
        self.method = method
        self.version = version
        self.fields = [field for field in fields if _FIELD_NAME.fullmatch(field[0])]
        self.scheme = scheme
        self._peer = peer
        hosts = [value for name, value in self.fields if name.lower() == b"host"]
        check_version(version, len(hosts))
        for host in hosts:
            check_host(host)
        self.target, authority = _origin_form(method, target)
        self.authority = (hosts[0] if hosts else b"") if authority is None else authority
        self.length = request_length(version, self.fields)
        expect = self.header("expect")
        if expect is not None and expect.lower() != "100-continue":
            raise BadMessage(417, "the only supported Expect is 100-continue")
        # Not in HTTP/1.0, and without a body there is nothing to wait for.
        self.expects = expect is not None and version == "1.1" and self.length != NONE
        self.upgrade = b""  # the protocol, if it is forwarded
        self._raw_path = self.target.partition(b"?")[0].decode("latin-1")
        self.path = decoded(self._raw_path)

    @property
    def rule_path(self) -> str:
        return plain_raw(self._raw_path)

    @property
    def peer(self) -> str | None:
        return self._peer

    def header(self, name: str) -> str | None:
        wanted = name.encode("latin-1")
        values = [value for key, value in self.fields if key.lower() == wanted]
        if not values:
            return None
        return (b"; " if wanted == b"cookie" else b", ").join(values).decode("latin-1")

    @property
    def is_for_us(self) -> bool:
        """Whether it must not be forwarded (Max-Forwards, RFC 9110, 7.6.2)."""
        return self.method == "OPTIONS" and (self.header("max-forwards") or "").strip() == "0"

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again if its outcome is unknown."""
        return self.method in IDEMPOTENT and self.length == NONE and not self.upgrade


def _origin_form(method: str, target: bytes) -> tuple[bytes, bytes | None]:
    """``/path?query``, and the authority if the target had one."""
    if method in ("CONNECT", "TRACE"):
        raise BadMessage(405, f"{method} is not supported by this proxy")
    if b"#" in target:
        raise BadMessage(400, "a request target must not have a fragment")
    if target.startswith(b"/") or (target == b"*" and method == "OPTIONS"):
        return target, None
    scheme = next((each for each in _SCHEMES if target.lower().startswith(each)), None)
    if scheme is None:
        raise BadMessage(400, "a request target must be a path or a complete http:// URL")
    rest = target[len(scheme) :]
    ends = [at for mark in (b"/", b"?") if (at := rest.find(mark)) >= 0]
    end = min(ends, default=len(rest))
    authority, path = rest[:end], rest[end:]
    if not authority or not is_host(authority):
        raise BadMessage(400, "the URL must have a host and no user")
    return path if path.startswith(b"/") else b"/" + path, authority
