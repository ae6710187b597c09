"""Deny lists hold for what is not counted, too: preflights and exempt paths."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.proxy_parts import Client, running
from proxy.real_servers import SERVERS, real_server

# What is decided here is decided before any loop has a say.
pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

PREFLIGHT = "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n"


def rules(**more: Any) -> dict[str, Any]:
    limits = {"key": "remote_address", "limits": "1/hour"}
    return {"domain": "web", "descriptors": [{**limits, **more.pop("rule", {})}], **more}


async def asked(
    port: int, rules: Any, *, method: str = "OPTIONS", path: str = "/api/x", body: str = "",
    fields: str = PREFLIGHT, times: int = 3, **options: Any,
) -> list[int]:  # fmt: skip
    if body:
        fields += f"Content-Length: {len(body)}\r\n"
    message = f"{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}".encode()
    async with running(port, rules, **options) as front, Client.to(front.port) as client:
        return [(await client.ask(message)).status for _ in range(times)]


@pytest.mark.parametrize("server", SERVERS)
async def test_a_preflight_is_not_counted_and_denied_all_the_same(server: str) -> None:
    async with real_server(server) as port:
        assert await asked(port, rules()) == [200] * 3
        for denied in (
            rules(deny={"remote_address": ["127.0.0.0/8"]}),
            rules(rule={"deny": ["127.0.0.1"]}),
        ):
            assert await asked(port, denied) == [403] * 3
            assert await asked(port, denied, path="/health", exempt=["/health"]) == [403] * 3
            assert await asked(port, denied, shadow=True) == [200] * 3
        assert await asked(port, rules(), count_preflight=True) == [200, 429, 429]


async def test_what_only_looks_like_a_preflight_is_counted() -> None:
    async with real_server("uvicorn") as port:
        assert await asked(port, rules(), body="hello") == [200, 429, 429]
        chunked = f"{PREFLIGHT}Transfer-Encoding: chunked\r\n\r\n0\r\n"
        assert await asked(port, rules(), fields=chunked) == [200, 429, 429]
        for fields in ("", "Origin: a\r\n", "Access-Control-Request-Method: POST\r\n"):
            assert await asked(port, rules(), fields=fields) == [200, 429, 429]
        assert await asked(port, rules(), method="POST") == [200, 429, 429]


async def test_an_empty_body_does_not_make_it_another() -> None:
    async with real_server("uvicorn") as port:
        fields = f"{PREFLIGHT}Content-Length: 0\r\n"
        assert await asked(port, rules(), fields=fields) == [200] * 3


async def test_options_that_the_proxy_answers_itself_are_decided_on_like_all() -> None:
    async with real_server("uvicorn") as port:
        fields = "Max-Forwards: 0\r\n"
        assert await asked(port, rules(), fields=fields) == [200, 429, 429]
        denied = rules(deny={"remote_address": ["127.0.0.0/8"]})
        assert await asked(port, denied, fields=fields) == [403] * 3


async def test_who_is_put_on_a_deny_list_later_is_denied_whatever_the_rules_are_about() -> None:
    about_paths = {"domain": "web", "descriptors": [{"key": "path", "limits": "9/hour"}]}
    async with (
        real_server("uvicorn") as port,
        running(port, about_paths, exempt=["/health"]) as front,
        Client.to(front.port) as client,
    ):
        gate = front.proxy.checkpoint._decider.gate
        assert gate is not None
        for path in ("/api/x", "/health"):
            assert (await client.get(path)).status == 200
            gate.switches.deny("remote_address", "127.0.0.0/8")
            assert (await client.get(path)).status == 403
            gate.switches.clear_list("deny", "remote_address", "127.0.0.0/8")
            assert (await client.get(path)).status == 200
