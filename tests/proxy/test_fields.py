"""Who asks, as the server is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.integrations.deciding.identity import Trust
from penstock.proxy.fields import to_server
from penstock.proxy.request import ProxyRequest
from proxy.proxy_parts import Client, running
from proxy.real_servers import SERVERS, real_server

NEW = {"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded"}


@pytest.mark.parametrize(
    ("peer", "trusted", "header", "came", "told"),
    [
        (  # nobody is trusted: what came is thrown away
            "198.51.100.1", [], "x-forwarded-for",
            {"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "https",
             "Forwarded": "for=6.6.6.6"},
            {"X-Forwarded-For": "198.51.100.1", "X-Forwarded-Proto": "http",
             "X-Forwarded-Host": "h", "Forwarded": 'for=198.51.100.1;host="h";proto=http'},
        ),
        (  # a trusted one: its word is kept, and it is added; a forged other is not
            "10.0.0.1", ["10.0.0.0/8"], "x-forwarded-for",
            {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https",
             "X-Forwarded-Host": "shop", "Forwarded": "for=6.6.6.6"},
            {"X-Forwarded-For": "203.0.113.7, 10.0.0.1", "X-Forwarded-Proto": "https",
             "X-Forwarded-Host": "shop", "Forwarded": 'for=203.0.113.7;host="h";proto=http'},
        ),
        (  # the same with Forwarded
            "10.0.0.1", ["10.0.0.0/8"], "forwarded",
            {"X-Forwarded-For": "6.6.6.6", "Forwarded": 'for="[2001:db8::1]:4711"'},
            {"X-Forwarded-For": "2001:db8::1",
             "Forwarded": 'for="[2001:db8::1]:4711", for=10.0.0.1;host="h";proto=http'},
        ),
        (  # IPv6 is in brackets and quotes
            "2001:db8::2", [], "x-forwarded-for", {},
            {"X-Forwarded-For": "2001:db8::2",
             "Forwarded": 'for="[2001:db8::2]";host="h";proto=http'},
        ),
        (  # a Unix socket has no address
            None, ["unix"], "x-forwarded-for", {"X-Forwarded-For": "203.0.113.7"},
            {"X-Forwarded-For": "203.0.113.7"},
        ),
        (None, [], "x-forwarded-for", {}, {"X-Forwarded-For": "unknown"}),
    ],
)  # fmt: skip
def test_who_asks_is_told_as_far_as_it_is_known(
    peer: str | None, trusted: list[str], header: str, came: dict[str, str], told: dict[str, str]
) -> None:
    fields = [(b"Host", b"h"), *[(n.encode(), v.encode()) for n, v in came.items()]]
    request = ProxyRequest("GET", b"/", "1.1", fields, peer)
    sent = to_server(request, Trust(trusted, header=header), header)
    found = {n.decode(): v.decode() for n, v in sent if n.decode() in NEW}
    assert len([n for n, _ in sent if n.decode().title() in NEW]) == 4
    assert {name: found[name] for name in told} == told


def test_via_is_a_list_that_grows() -> None:
    fields = [(b"Host", b"h"), (b"via", b"1.0 a"), (b"Via", b"1.1 b")]
    request = ProxyRequest("GET", b"/", "1.1", fields, "10.0.0.1")
    sent = to_server(request, Trust(), "x-forwarded-for")
    assert [v for n, v in sent if n.lower() == b"via"] == [b"1.0 a, 1.1 b, 1.1 penstock"]


def told(*came: tuple[str, str], peer: str = "198.51.100.1", trusted: tuple[str, ...] = ()) -> Any:
    """By name in lower case, all that the server gets."""
    fields = [(b"Host", b"h"), *[(n.encode(), v.encode()) for n, v in came]]
    sent = to_server(
        ProxyRequest("GET", b"/", "1.1", fields, peer), Trust(trusted), "x-forwarded-for"
    )
    found: dict[str, list[str]] = {}
    for name, value in sent:
        found.setdefault(name.decode().lower(), []).append(value.decode())
    return found


NAMES = [
    "X-Real-IP", "True-Client-IP", "CF-Connecting-IP", "Fastly-Client-IP", "X-Client-IP",
    "X-Cluster-Client-IP", "X-Envoy-External-Address", "Fly-Client-IP", "x-azure-clientip",
]  # fmt: skip
OTHERS = [
    "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Prefix", "X-Forwarded-Ssl",
    "X-Forwarded-Client-Cert", "Front-End-Https", "X-Rewrite-URL", "X-Original-URL",
]  # fmt: skip


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_what_anybody_says_about_an_address_or_a_url_does_not_go_on(name: str) -> None:
    assert name.lower() not in told((name, "10.0.0.1"))
    assert name.lower() not in told((name, "198.51.100.1"))


@pytest.mark.parametrize("name", NAMES)
def test_an_address_from_a_trusted_proxy_goes_on_if_it_is_the_client_s(name: str) -> None:
    chain = ("X-Forwarded-For", "6.6.6.6, 203.0.113.7")
    options: Any = {"peer": "10.0.0.1", "trusted": ("10.0.0.0/8",)}
    assert told(chain, (name, "203.0.113.7"), **options)[name.lower()] == ["203.0.113.7"]
    assert name.lower() not in told(chain, (name, "6.6.6.6"), **options)
    both = told(chain, (name, "203.0.113.7"), (name, "6.6.6.6"), **options)
    assert both[name.lower()] == ["203.0.113.7"]


@pytest.mark.parametrize("name", OTHERS)
def test_what_else_a_trusted_proxy_says_goes_on(name: str) -> None:
    assert told((name, "x"), peer="10.0.0.1", trusted=("10.0.0.0/8",))[name.lower()] == ["x"]


@pytest.mark.parametrize(
    "name", ["X_Forwarded_For", "X-Forwarded_For", "X_Api_Key", "SCRIPT_NAME", "X.Real.IP", "a~b"]
)
@pytest.mark.parametrize("trusted", [(), ("198.51.100.0/24",)])
def test_names_that_servers_mix_up_do_not_go_on(name: str, trusted: tuple[str, ...]) -> None:
    found = told((name, "6.6.6.6"), ("X-Api-Key", "mine"), trusted=trusted)
    assert name.lower() not in found
    assert found["x-api-key"] == ["mine"]
    assert "6.6.6.6" not in str(found)


def test_nor_do_rules_see_them() -> None:
    fields = [(b"Host", b"h"), (b"X_Api_Key", b"one"), (b"Content_Length", b"3")]
    request = ProxyRequest("POST", b"/", "1.1", fields, "198.51.100.1")
    assert (request.header("x_api_key"), request.length) == (None, 0)


def test_connection_does_not_take_away_what_the_proxy_says() -> None:
    names = "Host, Via, X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host, Forwarded"
    found = told(("Connection", f"close, {names}"), ("X-Forwarded-For", "6.6.6.6"))
    assert found["x-forwarded-for"] == ["198.51.100.1"]
    assert {name.strip().lower() for name in names.split(",")} <= found.keys()


def test_fields_that_come_twice_are_told_once() -> None:
    twice = [("X-Forwarded-For", "6.6.6.6"), ("x-forwarded-for", "203.0.113.7")]
    found = told(*twice, peer="10.0.0.1", trusted=("10.0.0.0/8",))
    assert found["x-forwarded-for"] == ["6.6.6.6, 203.0.113.7, 10.0.0.1"]
    assert told(*twice)["x-forwarded-for"] == ["198.51.100.1"]


# On real servers -----------------------------------------------------------------------------

FORGED = [
    "X_Forwarded_For: 6.6.6.6", "X-Forwarded_For: 6.6.6.6", "X_Real_IP: 6.6.6.6",
    "X-Real-IP: 6.6.6.6", "True-Client-IP: 6.6.6.6", "X_Api_Key: 6.6.6.6",
    "SCRIPT_NAME: /6.6.6.6", "PATH_INFO: /6.6.6.6", "X-Forwarded-For: 6.6.6.6",
    "Forwarded: for=6.6.6.6", "X-Forwarded-Prefix: /6.6.6.6",
    "X-Forwarded-For: 6.6.6.6\r\nConnection: X-Forwarded-For",
]  # fmt: skip
TRAILERS = "X-Real-IP: 6.6.6.6\r\nX-Forwarded-For: 6.6.6.6\r\nX-Api-Key: 6.6.6.6\r\n"


@pytest.mark.asyncio(loop_factories=["uvloop"])
@pytest.mark.parametrize("server", SERVERS)
async def test_no_real_server_is_told_what_a_client_made_up(server: str) -> None:
    async with real_server(server) as port, running(port) as front:
        for forged in FORGED:
            async with Client.to(front.port) as client:
                answer = await client.get("/api/x", forged)
            assert (answer.status, json.loads(answer.body)["path"]) == (200, "/api/x"), forged
            assert b"6.6.6.6" not in answer.body, forged
            assert json.loads(answer.body)["told"]["x-forwarded-for"] == "127.0.0.1"


@pytest.mark.asyncio(loop_factories=["uvloop"])
async def test_trailers_do_not_become_header_fields() -> None:
    """uvicorn adds them to those of the request."""
    head = "POST /api/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Api-Key\r\n"
    async with (
        real_server("uvicorn") as port,
        running(port) as front,
        Client.to(front.port) as client,
        Client.to(port) as direct,
    ):
        message = f"{head}\r\n1\r\na\r\n0\r\n{TRAILERS}\r\n".encode()
        assert b"6.6.6.6" in (await direct.ask(message)).body
        answer = await client.ask(message)
    found = json.loads(answer.body)
    assert (found["body"], found["told"]["x-forwarded-for"]) == ("a", "127.0.0.1")
    assert not {"x-api-key", "x-real-ip", "trailer"} & found["told"].keys()


@pytest.mark.asyncio(loop_factories=["uvloop"])
@pytest.mark.parametrize(("server", "mixed_up"), [("gunicorn", False), ("wsgiref", True)])
async def test_which_servers_take_an_underscore_for_a_hyphen(server: str, mixed_up: bool) -> None:
    """Middleware cannot tell, once the server has: see docs/howto/know-who-is-asking.md."""
    async with real_server(server) as port, Client.to(port) as client:
        answer = await client.get("/api/x", "X_Forwarded_For: 6.6.6.6", "Connection: close")
    assert ("x-forwarded-for" in json.loads(answer.body)["told"]) is mixed_up
