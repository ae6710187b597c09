"""Which header fields are forwarded, in either direction, and which are added.

Hop-by-hop fields are removed: those of RFC 9110, 7.6.1, and all that ``Connection`` names. Fields
about the client are accepted from trusted proxies only: from others ``X-Forwarded-*`` and
``Forwarded`` are removed and set again. Trusted proxies set one of ``X-Forwarded-For`` and
``Forwarded`` and may pass on a forged other one, so that one is set again as well.

Servers look for a client's address in many other fields, such as ``X-Real-IP``. From a trusted
proxy such a field is forwarded if it has the address that we determined: otherwise the client
sent it, and the proxy passed it on. From others none of them is forwarded, nor are fields with
another URL than the one that the rules have seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from penstock.integrations.deciding.identity import FORWARDED, X_FORWARDED_FOR, Trust
from penstock.proxy.request import ProxyRequest
from penstock.wires.http.framing import Field

NAME = b"penstock"

_OF_A_CONNECTION = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",  # set again, from what was read
    }
)
_ABOUT_THE_CLIENT = frozenset(
    {b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"forwarded"}
)
# CDNs, gateways and platforms put a client's address into these.
_ADDRESSES = frozenset(
    {
        *(b"x-real-ip", b"true-client-ip", b"client-ip", b"x-client-ip", b"x-client-address"),
        *(b"cf-connecting-ip", b"cf-connecting-ipv6", b"cf-pseudo-ipv4", b"fastly-client-ip"),
        *(b"fly-client-ip", b"do-connecting-ip", b"x-appengine-user-ip", b"x-azure-clientip"),
        *(b"x-azure-socketip", b"x-cluster-client-ip", b"x-envoy-external-address"),
        *(b"proxy-client-ip", b"wl-proxy-client-ip", b"x-proxyuser-ip", b"x-originating-ip"),
        *(b"x-remote-ip", b"x-remote-addr", b"remote-addr", b"x-nf-client-connection-ip"),
    }
)
# From trusted proxies only: another scheme or URL, which some servers use.
_SET_BY_PROXIES = frozenset(
    {
        *(b"front-end-https", b"x-scheme", b"x-url-scheme", b"x-host", b"x-http-host-override"),
        *(b"x-rewrite-url", b"x-original-url", b"x-original-uri", b"x-original-host"),
        *(b"x-original-method", b"x-original-forwarded-for"),
    }
)
_FORWARDED = b"x-forwarded-"
# Fields that change the meaning of a message: not allowed in trailers.
_NOT_AFTER_A_BODY = _OF_A_CONNECTION | {
    *(b"host", b"authorization", b"cookie", b"set-cookie", b"expect", b"trailer", b"via"),
    *(b"content-encoding", b"content-type", b"content-range", b"cache-control", b"location"),
}
_PLAIN_NODE = re.compile(r"[0-9.]+|[A-Za-z0-9_]+")


def tokens(fields: Iterable[Field], name: bytes) -> set[bytes]:
    """The members of a list field, in lower case."""
    members: set[bytes] = set()
    for key, value in fields:
        if key.lower() == name:
            members.update(token.strip().lower() for token in value.split(b","))
    members.discard(b"")
    return members


def to_server(request: ProxyRequest, trust: Trust, header: str) -> list[Field]:
    """The fields of a forwarded request, without its framing."""
    fields = request.fields
    dropped = _dropped(fields) | _ABOUT_THE_CLIENT | {b"host", b"via", b"trailer"}
    if not request.expects:
        dropped |= {b"expect"}
    out = [(b"Host", request.authority)]
    trusted = trust.trusts(request.peer)
    client = (trust.client(request.peer, request.header) or "").encode("latin-1")
    for field in fields:
        name = field[0].lower()
        if name in dropped or (name in _ADDRESSES and not (trusted and field[1] == client)):
            continue
        if trusted or not (name in _SET_BY_PROXIES or name.startswith(_FORWARDED)):
            out.append(field)
    if request.method == "OPTIONS":
        out = [_one_hop_less(field) for field in out]
    if b"trailers" in tokens(fields, b"te"):
        out.append((b"TE", b"trailers"))
    if request.upgrade:
        out += [(b"Upgrade", request.upgrade), (b"Connection", b"Upgrade")]
    out += _about_the_client(request, trusted, trust, header)
    out.append((b"Via", _via(fields, request.version)))
    return out


def to_client(
    fields: Sequence[Field], version: str, ours: Iterable[tuple[str, str]], upgraded: bool = False
) -> list[Field]:
    """The fields of a forwarded response, without its framing."""
    dropped = _dropped(fields) | {b"via"}
    out = [field for field in fields if field[0].lower() not in dropped]
    if upgraded:
        out += [field for field in fields if field[0].lower() == b"upgrade"]
        out.append((b"Connection", b"Upgrade"))
    out.append((b"Via", _via(fields, version)))
    out += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in ours]
    return out


def trailers(fields: Iterable[Field]) -> list[Field]:
    """The fields of a response that may come after its body."""
    return [field for field in fields if field[0].lower() not in _NOT_AFTER_A_BODY]


def _dropped(fields: Iterable[Field]) -> frozenset[bytes] | set[bytes]:
    named = tokens(fields, b"connection")
    return _OF_A_CONNECTION | named if named else _OF_A_CONNECTION


def _one_hop_less(field: Field) -> Field:
    name, value = field
    left = value.strip()
    if name.lower() != b"max-forwards" or not left.isdigit() or len(left) > 9:
        return field
    return name, b"%d" % max(0, int(left) - 1)


def _via(fields: Iterable[Field], version: str) -> bytes:
    before = [value for name, value in fields if name.lower() == b"via"]
    return b", ".join([*before, b"%b %b" % (version.encode(), NAME)])


def _about_the_client(
    request: ProxyRequest, trusted: bool, trust: Trust, header: str
) -> list[Field]:
    """X-Forwarded-For, -Proto, -Host and Forwarded."""
    peer, host, scheme = request.peer, request.authority.decode("latin-1"), request.scheme
    believed = request.header if trusted else _nothing
    client = trust.client(peer, request.header)
    before = believed(header)
    chain, elements = _node(client), _element(client, scheme, host)
    if header == X_FORWARDED_FOR and before is not None:
        chain = before if peer is None else f"{before}, {peer}"
    elif header == FORWARDED and before is not None:
        elements = f"{before}, {_element(peer, scheme, host)}"
    return [
        (b"X-Forwarded-For", chain.encode("latin-1")),
        (b"X-Forwarded-Proto", (believed("x-forwarded-proto") or scheme).encode("latin-1")),
        (b"X-Forwarded-Host", (believed("x-forwarded-host") or host).encode("latin-1")),
        (b"Forwarded", elements.encode("latin-1")),
    ]


def _nothing(name: str) -> None:
    return None


def _node(address: str | None) -> str:
    return address or "unknown"


def _element(address: str | None, scheme: str, host: str) -> str:
    """One element of Forwarded (RFC 7239)."""
    node = _node(address)
    if ":" in node:
        node = f'"[{node}]"'
    elif not _PLAIN_NODE.fullmatch(node):
        node = "unknown"
    quoted = host.replace("\\", "\\\\").replace('"', '\\"')
    return f'for={node};host="{quoted}";proto={scheme}'
