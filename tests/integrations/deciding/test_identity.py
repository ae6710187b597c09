"""Who is asking: forged headers neither escape a limit nor use up another's.

The network: clients on the internet; a load balancer at 10.0.0.1, sometimes behind a CDN
at 198.51.100.0/24. An attacker writes what it likes to the left; each proxy adds on the
right the address that it saw.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.integrations import by_ip, by_region
from penstock.integrations.asgi.request import AsgiRequest
from penstock.integrations.deciding.identity import Trust
from penstock.integrations.wsgi.request import WsgiRequest

BALANCER, CDN, CLIENT, VICTIM = "10.0.0.1", "198.51.100.7", "203.0.113.7", "192.0.2.1"
ONE = {"trusted": ["10.0.0.0/8"]}
TWO = {"trusted": ["10.0.0.0/8", "198.51.100.0/24"]}
XFF, FWD = "x-forwarded-for", "forwarded"
FORWARDED = {**ONE, "header": "forwarded"}

# (what it shows, who is trusted, the peer, headers, who is counted)
SPOOFS: list[tuple[str, dict[str, Any], str | None, list[tuple[str, str]], str]] = [
    ("nobody is trusted", {}, CLIENT, [(XFF, VICTIM)], CLIENT),
    ("nobody is trusted, Forwarded", {}, CLIENT, [(FWD, f"for={VICTIM}")], CLIENT),
    ("nobody is trusted, X-Real-IP", {}, CLIENT, [("x-real-ip", VICTIM)], CLIENT),
    ("past the balancer", ONE, CLIENT, [(XFF, VICTIM)], CLIENT),
    ("through the balancer", ONE, BALANCER, [(XFF, CLIENT)], CLIENT),
    ("forged left of the truth", ONE, BALANCER, [(XFF, f"{VICTIM}, {CLIENT}")], CLIENT),
    ("many forged ones", ONE, BALANCER, [(XFF, f"{VICTIM}, 1.1.1.1, 2.2.2.2, {CLIENT}")], CLIENT),
    ("forged proxies, too", ONE, BALANCER, [(XFF, f"{VICTIM}, 10.9.9.9, {CLIENT}")], CLIENT),
    ("forged in a header line of its own", ONE, BALANCER,
     [(XFF, VICTIM), (XFF, CLIENT)], CLIENT),
    ("an unnamed proxy is a client", ONE, BALANCER, [(XFF, f"{CLIENT}, {CDN}")], CDN),
    ("two proxies", TWO, BALANCER, [(XFF, f"{CLIENT}, {CDN}")], CLIENT),
    ("two proxies and forged", TWO, BALANCER, [(XFF, f"{VICTIM}, {CLIENT}, {CDN}")], CLIENT),
    ("from inside", ONE, BALANCER, [(XFF, "10.7.7.7")], "10.7.7.7"),
    ("no header", ONE, BALANCER, [], BALANCER),
    ("an empty header", ONE, BALANCER, [(XFF, "")], BALANCER),
    ("rubbish ends the walk", ONE, BALANCER, [(XFF, f"{VICTIM}, rubbish")], BALANCER),
    ("unknown ends the walk", ONE, BALANCER, [(XFF, f"{VICTIM}, unknown")], BALANCER),
    ("rubbish left of the truth", ONE, BALANCER, [(XFF, f"<script>, {CLIENT}")], CLIENT),
    ("an empty entry ends the walk", ONE, BALANCER, [(XFF, f"{VICTIM},")], BALANCER),
    ("a port is not part of it", ONE, BALANCER, [(XFF, f"{CLIENT}:31337")], CLIENT),
    ("IPv6 with a port", ONE, BALANCER, [(XFF, "[2001:db8::7]:443")], "2001:db8::7"),
    ("IPv4 in IPv6 clothes is IPv4", ONE, BALANCER, [(XFF, f"::ffff:{CLIENT}")], CLIENT),
    ("a trusted proxy in IPv6 clothes", ONE, "::ffff:10.0.0.1", [(XFF, CLIENT)], CLIENT),
    ("a proxy's address, forged", ONE, BALANCER, [(XFF, f"{CLIENT}, 10.0.0.5, {VICTIM}")], VICTIM),
    ("a leading zero is no address", ONE, BALANCER, [(XFF, "203.0.113.007")], BALANCER),
    ("the other header is not read", ONE, BALANCER,
     [(FWD, f"for={VICTIM}"), (XFF, CLIENT)], CLIENT),
    ("nor the other way round", FORWARDED, BALANCER,
     [(XFF, VICTIM), (FWD, f"for={CLIENT}")], CLIENT),
    ("Forwarded: forged left", FORWARDED, BALANCER, [(FWD, f"for={VICTIM}, for={CLIENT}")], CLIENT),
    ("Forwarded: quoted IPv6 with a port", FORWARDED, BALANCER,
     [(FWD, 'proto=https;for="[2001:db8::7]:80";by=10.0.0.1')], "2001:db8::7"),
    ("Forwarded: a comma inside quotes", FORWARDED, BALANCER,
     [(FWD, f'for="{VICTIM}, for={VICTIM}", for={CLIENT}')], CLIENT),
    ("Forwarded: an open quote", FORWARDED, BALANCER,
     [(FWD, f'for="{VICTIM}, for={CLIENT}')], CLIENT),
    ("Forwarded: an open quote before a quoted one", FORWARDED, BALANCER,
     [(FWD, f'for="{VICTIM}, for="[2001:db8::7]"')], "2001:db8::7"),
    ("Forwarded: hidden", FORWARDED, BALANCER, [(FWD, f"for={VICTIM}, for=_hidden")], BALANCER),
    ("Forwarded: two addresses in one", FORWARDED, BALANCER,
     [(FWD, f"for={VICTIM};for={CLIENT}")], BALANCER),
    ("Forwarded: For in capitals", FORWARDED, BALANCER,
     [(FWD, f"For={CLIENT};PROTO=http")], CLIENT),
    ("one hop", {"hops": 1}, BALANCER, [(XFF, f"{VICTIM}, {CLIENT}")], CLIENT),
    ("two hops", {"hops": 2}, BALANCER, [(XFF, f"{VICTIM}, {CLIENT}, {CDN}")], CLIENT),
    ("fewer than said", {"hops": 3}, BALANCER, [(XFF, f"{CLIENT}, {CDN}")], CLIENT),
    ("a Unix socket that is trusted", {"trusted": ["unix"]}, None, [(XFF, CLIENT)], CLIENT),
    ("a Unix socket that is not", {}, None, [(XFF, VICTIM)], "unknown"),
    ("a thousand forged ones", ONE, BALANCER,
     [(XFF, ", ".join(["1.1.1.1"] * 1000) + f", {CLIENT}")], CLIENT),
    ("a thousand forged proxies", ONE, BALANCER,
     [(XFF, f"{VICTIM}, " + ", ".join(["10.0.0.9"] * 1000))], "10.0.0.9"),
]  # fmt: skip


def asgi(trust: Trust, peer: str | None, headers: list[tuple[str, str]]) -> AsgiRequest:
    scope = {
        "type": "http", "method": "GET", "path": "/",
        "client": None if peer is None else (peer, 1),
        "headers": [(n.encode(), v.encode("latin-1")) for n, v in headers],
    }  # fmt: skip
    request = AsgiRequest(scope)
    request.trust = trust
    return request


def wsgi(trust: Trust, peer: str | None, headers: list[tuple[str, str]]) -> WsgiRequest:
    environ: dict[str, Any] = {"REQUEST_METHOD": "GET", "PATH_INFO": "/"}
    if peer is not None:
        environ["REMOTE_ADDR"] = peer
    for name, value in headers:
        key = "HTTP_" + name.upper().replace("-", "_")
        environ[key] = f"{environ[key]}, {value}" if key in environ else value
    request = WsgiRequest(environ)
    request.trust = trust
    return request


@pytest.mark.parametrize("make", [asgi, wsgi])
@pytest.mark.parametrize(
    ("trust", "peer", "headers", "counted"), [s[1:] for s in SPOOFS], ids=[s[0] for s in SPOOFS]
)
def test_forged_headers_change_nothing(
    make: Any, trust: Any, peer: Any, headers: Any, counted: str
) -> None:
    request = make(Trust(**trust), peer, headers)
    wanted = counted if counted == "unknown" else None
    assert (request.client or "unknown") == (wanted or counted)


SAFE_TRUST = st.sampled_from([Trust(**ONE), Trust(**FORWARDED), Trust(**TWO)])


@given(SAFE_TRUST, st.text(max_size=60))
def test_what_an_attacker_writes_never_changes_who_it_is(trust: Trust, forged: str) -> None:
    honest = {XFF: CLIENT, FWD: f"for={CLIENT}"}
    tampered = {name: f"{forged}, {value}" for name, value in honest.items()}
    assert trust.client(BALANCER, tampered.get) == CLIENT
    assert trust.client(CLIENT, tampered.get) == CLIENT


@given(st.text(max_size=80))
def test_nothing_that_is_sent_is_an_error(text: str) -> None:
    for header in (XFF, FWD):
        for options in (ONE, {"hops": 2}):
            Trust(**options, header=header).client(BALANCER, lambda name: text)


def test_addresses_of_one_ipv6_network_count_together() -> None:
    keys = {
        by_ip(asgi(Trust(), peer, []))
        for peer in ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "2001:DB8::1:0:0:0:3")
    }
    assert keys == {"ip:2001:db8:0:1::/64"}
    assert by_ip(asgi(Trust(), "2001:db8:0:2::1", [])) == "ip:2001:db8:0:2::/64"
    assert by_ip(asgi(Trust(), "::ffff:203.0.113.7", [])) == "ip:203.0.113.7/32"


def test_a_region_is_believed_from_a_proxy_only() -> None:
    key: Any = by_region("cf-ipcountry")
    headers = [("cf-ipcountry", "TW")]
    assert key(asgi(Trust(**ONE), BALANCER, headers)) == "region:TW"
    assert key(asgi(Trust(**ONE), CLIENT, headers)) == f"ip:{CLIENT}/32"
    assert key(asgi(Trust(), CLIENT, headers)) == f"ip:{CLIENT}/32"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trusted": "10.0.0.0/8"}, "a list of networks"),
        ({"trusted": ["10.0.0.0/99"]}, "is no network"),
        ({"trusted": ["balancer"]}, "trusted names networks"),
        ({"trusted": [7]}, "trusted names networks"),
        ({"hops": -1}, "from 0 to 32"),
        ({"hops": True}, "from 0 to 32"),
        ({"hops": 1, "trusted": ["10.0.0.0/8"]}, "not both"),
        ({"header": "x-real-ip"}, "header is"),
    ],
)
def test_what_is_wrong_is_said(options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Trust(**options)
