"""Limits: by the rules and the dimensions that middleware has, and with its answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock.async_gate import AsyncGate
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.deciding import notices
from penstock.service.service import Observer
from proxy.proxy_parts import Client, app_server, replying, running, scripted

# What is decided here is decided before any loop has a say.
pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def by(key: str, limit: str = "2/hour", **more: Any) -> dict[str, Any]:
    return {"domain": "web", "descriptors": [{"key": key, "limits": limit, **more}]}


async def test_what_is_over_the_limit_does_not_reach_the_server() -> None:
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while True:
            await reader.readuntil(b"\r\n\r\n")
            asked += 1
            writer.write(OK)

    async with scripted(serve) as port, running(port, by("remote_address")) as front:
        async with Client.to(front.port) as client:
            answers = [await client.get() for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 429, 429, 429]
        assert [answers[n]["x-ratelimit-remaining"] for n in range(3)] == ["1", "0", "0"]
        assert asked == 2
        assert front.proxy.refused == 3


@pytest.mark.parametrize("accept", ["*/*", "application/problem+json"])
async def test_a_refusal_is_that_of_the_middleware(accept: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    rules = by("header:x-who", "1/hour")
    middleware = PenstockMiddleware(app, gate=AsyncGate.from_rules(rules))
    async with (
        app_server(middleware) as own,
        app_server(app) as port,
        running(port, rules) as front,
        Client.to(own) as direct,
        Client.to(front.port) as client,
    ):
        for _ in range(2):
            theirs = await direct.get("/", "X-Who: me", f"Accept: {accept}")
            ours = await client.get("/", "X-Who: me", f"Accept: {accept}")
        assert ours.status == theirs.status == 429
        assert json.loads(ours.body).keys() == json.loads(theirs.body).keys()
        skipped = {"date", "server", "x-ratelimit-reset"}
        assert {n.lower(): v for n, v in ours.fields if n.lower() not in skipped} == {
            n.lower(): v for n, v in theirs.fields if n.lower() not in skipped
        }


@pytest.mark.parametrize(
    ("rules", "same", "other"),
    [
        (by("path", value="/login"), ["/login", "/%6Cogin", "/lo%67in", "/login?a"], "/logon"),
        (by("method"), ["/a", "/b", "/c"], None),
        (by("host"), ["/a", "/b", "/c"], None),
    ],
)
async def test_dimensions(rules: Any, same: list[str], other: str | None) -> None:
    async with (
        scripted(replying(OK)) as port,
        running(port, rules) as front,
        Client.to(front.port) as client,
    ):
        statuses = [(await client.get(path)).status for path in same]
        assert statuses == [200, 200, *[429] * (len(same) - 2)]
        if other:
            assert (await client.get(other)).status == 200


async def test_a_client_behind_a_trusted_proxy_and_one_that_only_says_so() -> None:
    async with scripted(replying(OK)) as port:
        async with (
            running(port, by("remote_address"), trusted=["127.0.0.0/8"]) as front,
            Client.to(front.port) as client,
        ):
            for address in ("203.0.113.7", "203.0.113.8"):
                statuses = [
                    (await client.get("/", f"X-Forwarded-For: {address}")).status for _ in range(3)
                ]
                assert statuses == [200, 200, 429]
        async with running(port, by("remote_address")) as front, Client.to(front.port) as client:
            statuses = [
                (await client.get("/", f"X-Forwarded-For: 203.0.113.{n}")).status for n in range(3)
            ]
            assert statuses == [200, 200, 429]


async def test_a_proxy_in_front_that_was_not_declared_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notices, "_logged", set())
    async with (
        scripted(replying(OK)) as port,
        running(port, by("remote_address")) as front,
        Client.to(front.port) as client,
    ):
        for _ in range(3):
            await client.get("/", "X-Forwarded-For: 203.0.113.7")
    (text,) = [each.getMessage() for each in caplog.records if "proxy" in each.getMessage()]
    assert "--trusted 127.0.0.1" in text


async def test_the_environment_switches_the_limits_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_ENABLED", "0")
    async with (
        scripted(replying(OK)) as port,
        running(port, by("remote_address")) as front,
        Client.to(front.port) as client,
    ):
        answers = [await client.get() for _ in range(3)]
    assert [answer.status for answer in answers] == [200] * 3
    assert answers[0].get("x-ratelimit-limit") is None


async def test_a_refused_upload_keeps_the_connection_if_it_is_short() -> None:
    post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    async with (
        scripted(replying(OK)) as port,
        running(port, by("method", "1/hour")) as front,
        Client.to(front.port) as client,
    ):
        assert (await client.ask(post % 0)).status == 200
        await client.send(post % 1000 + b"a" * 400)
        assert (await client.response()).status == 429
        await client.send(b"a" * 600)
        assert (await client.get()).status == 200
        answer = await client.ask(post % 10_000_000)
        assert (answer.status, answer["connection"]) == (429, "close")
        assert await client.ended()


async def test_who_waits_for_100_and_is_refused_need_not_send() -> None:
    post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    async with (
        scripted(replying(OK)) as port,
        running(port, by("method", "1/hour")) as front,
        Client.to(front.port) as client,
    ):
        await client.ask(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        answer = await client.ask(post)
        assert (answer.status, answer.interim, answer["connection"]) == (429, [], "close")


async def test_to_head_a_refusal_has_no_body() -> None:
    async with (
        scripted(replying(OK)) as port,
        running(port, by("method", "1/hour")) as front,
        Client.to(front.port) as client,
    ):
        for status in (200, 429, 429):
            answer = await client.ask(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", head=True)
            assert (answer.status, answer.body) == (status, b"")


async def test_exempt_and_shadow() -> None:
    async with scripted(replying(OK)) as port:
        async with (
            running(port, by("method", "1/hour"), exempt=["/health"]) as front,
            Client.to(front.port) as client,
        ):
            assert [(await client.get("/health")).status for _ in range(3)] == [200] * 3
        async with (
            running(port, by("method", "1/hour"), shadow=True) as front,
            Client.to(front.port) as client,
        ):
            assert [(await client.get()).status for _ in range(3)] == [200] * 3


async def test_an_observer_is_told_of_decisions() -> None:
    told: list[tuple[str, bool]] = []

    class Watching(Observer):
        def decided(self, domain: str, verdict: Any, seconds: float) -> None:
            told.append((domain, verdict.allowed))
            assert 0 <= seconds < 5

    async with scripted(replying(OK)) as port, running(port, by("method", "1/hour")) as front:
        front.proxy._observer, front.proxy._domain = Watching(), "web"
        async with Client.to(front.port) as client:
            await client.get()
            await client.get()
    assert told == [("web", True), ("web", False)]


async def test_a_request_holds_its_slot_until_the_response_has_ended() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(OK[:-1])
            if b"/slow" in head:
                begun.set()
                await go_on.wait()
            writer.write(OK[-1:])

    rules = {"domain": "web", "descriptors": [{"key": "remote_address", "concurrency": 1}]}
    async with (
        asyncio.timeout(60),
        scripted(serve) as port,
        running(port, rules) as front,
        Client.to(front.port) as client,
    ):
        async with Client.to(front.port) as slow:
            answering = asyncio.ensure_future(slow.get("/slow"))
            await begun.wait()
            assert (await client.get()).status == 429
            go_on.set()
            assert (await answering).status == 200
            assert [(await client.get()).status for _ in range(3)] == [200] * 3
            begun.clear()
            go_on.clear()
            await slow.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
            await begun.wait()
            assert (await client.get()).status == 429
        while (await client.get()).status != 200:  # until it is noticed that slow has left
            await asyncio.sleep(0.001)
