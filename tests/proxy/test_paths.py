"""What rules decide on is what the server serves, whatever the path is spelled like."""

from __future__ import annotations

import asyncio
import json

import pytest

from proxy.proxy_parts import Client, head_of, running, scripted
from proxy.real_servers import SERVERS, real_server

# What is decided here is decided before any loop has a say.
pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

EACH_CLIENT = {"domain": "web", "descriptors": [{"key": "remote_address", "limits": "1/hour"}]}

# To rules that tidy them up these are all /health, or below /static/. To a server they are not.
DISGUISED = [
    "/api/x/../../health",
    "/api/x/%2e%2e/%2E%2e/health",
    "/api/x/..%2f..%2Fhealth",
    "/api/..%5c..%5chealth",
    "/api/..\\..\\health",
    "/api/x/%252e%252e/%252e%252e/health",
    "/api/..;/health",
    "/api/.;a=b/../health",
    "/api/../static/x",
    "/static/../api/x",
    "/static/%2e%2e/api/x",
    "/static/..%2fapi/x",
    "/static/..;/api/x",
    "/static/..%00/api/x",
    "/static/%252e%252e/api/x",
    "//health",
    "//static/x",
    "/%2fhealth",
    "/health;/../api/x",
    "/health%23/../api/x",
    "/health%3f/../api/x",
    "/static%2fx",
    "/health.",
    "/health%20",
    "/%c0%ae%c0%ae/health",
    "http://example.com/api/x/../../health",
    "http://example.com//health",
    "/health%",
]


@pytest.mark.parametrize("server", SERVERS)
async def test_no_spelling_makes_a_path_exempt_that_is_not(server: str) -> None:
    exempt = ["/health", "/static/*"]
    async with real_server(server) as port:
        for path in DISGUISED:
            async with (
                running(port, EACH_CLIENT, exempt=exempt) as front,
                Client.to(front.port) as client,
            ):
                found = [await client.get(path) for _ in range(3)]
                served = [answer for answer in found if answer.status not in (400, 429)]
                assert len(served) <= 1, f"{path}: {[answer.status for answer in found]}"


@pytest.mark.parametrize("server", SERVERS)
async def test_no_spelling_escapes_the_rule_of_a_path(server: str) -> None:
    """Neither a rule for some paths nor a rule for all others."""
    rules = {
        "domain": "web",
        "descriptors": [
            {"key": "path", "value": "/api/*", "limits": "1/hour"},
            {"key": "path", "value": "/health", "rate_limit": {"unlimited": True}},
            {"key": "path", "value": "/static/*", "rate_limit": {"unlimited": True}},
        ],
    }
    paths = [path for path in DISGUISED if "api" in path]
    paths += ["/x/../api/x", "//api/x", "/api%2fx", "/%61pi/x", "/%61%70%69%2Fx", "/./api/x"]
    async with real_server(server) as port, running(port, rules) as front:
        async with Client.to(front.port) as client:
            assert (await client.get("/api/x")).status == 200  # that was the one
        for path in paths:
            async with Client.to(front.port) as client:
                answer = await client.get(path)
                if answer.status == 200:
                    assert json.loads(answer.body)["from"] != "api", path


@pytest.mark.parametrize("server", SERVERS)
async def test_honest_paths_pass_and_come_as_they_were(server: str) -> None:
    rules = {
        "domain": "web",
        "descriptors": [{"key": "path", "value": "/login", "limits": "1/hour"}],
    }
    honest = {
        "/api/a%20b": "/api/a b",
        "/api/%C3%A9t%c3%a9": "/api/été",
        "/api/group%2Fname": "/api/group/name",
        "/api/https://example.com/a.png": "/api/https://example.com/a.png",
        "/api/a;version=2": "/api/a;version=2",
        "/api/C%23": "/api/C#",
        "/api/why%3F": "/api/why?",
        "/api/100%25": "/api/100%",
        "/api/.hidden/a...b/..c": "/api/.hidden/a...b/..c",
        "/api/St.": "/api/St.",
        "/api/(a)!$&'*+,=:@~-_": "/api/(a)!$&'*+,=:@~-_",
        "/api/50%2520off": "/api/50%20off",
    }
    async with (
        real_server(server) as port,
        running(port, rules, exempt=["/health", "/static/*"]) as front,
        Client.to(front.port) as client,
    ):
        for path, read in honest.items():
            answer = await client.get(path)
            assert answer.status == 200, f"{path}: {answer.body!r}"
            found = json.loads(answer.body)["path"]
            found = found if server == "uvicorn" else found.encode("latin-1").decode()
            assert found == read
        for path in ("/health", "/static/a//b", "/static/a%20b"):
            assert [(await client.get(path)).status for _ in range(3)] == [200] * 3


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/x/../login", "a segment . or .."),
        ("/x/%2e%2e/login", "a segment . or .."),
        ("/a%5cb", "a backslash"),
        ("/a%00", "a control character"),
        ("/%256cogin", "escaped twice"),
        ("/100%", "a % that begins no escape"),
        ("/%c0%afx", "too many bytes"),
        ("//login", "read as '//login' and as '/login'"),
        ("/login;a=b", "read as '/login;a=b' and as '/login'"),
        ("/%2Flogin", "read as '/%2Flogin' and as '/login'"),
        ("/login%23x", "read as '/login#x' and as '/login'"),
        ("/login%3Fx", "read as '/login?x' and as '/login'"),
        ("/login%20", "read as '/login ' and as '/login'"),
        ("/;/;/%2F/;a/;b/%2F;%23.", "more than 8 readings"),
    ],
)
async def test_a_refusal_says_what_is_wrong_with_the_path(path: str, why: str) -> None:
    rules = {
        "domain": "web",
        "descriptors": [{"key": "path", "value": "/login", "limits": "9/hour"}],
    }

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("nothing comes through")

    async with (
        scripted(serve) as port,
        running(port, rules) as front,
        Client.to(front.port) as client,
    ):
        answer = await client.get(path)
        assert answer.status == 400
        assert why in json.loads(answer.body)["error"]


async def test_where_no_rule_asks_for_the_path_every_path_passes_as_it_came() -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen.append(await head_of(reader))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    paths = ["/a//b/../c?d=//../e", "/a%2Fb%5c", "/%256c", "/a;b", "/100%"]
    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        assert [(await client.get(path)).status for path in paths] == [200] * len(paths)
    assert [head.split(b" ")[1].decode() for head in seen] == paths


async def test_rules_in_shadow_refuse_no_path() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await head_of(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    rules = {"domain": "web", "descriptors": [{"key": "path", "limits": "1/hour"}]}
    async with (
        scripted(serve) as port,
        running(port, rules, shadow=True) as front,
        Client.to(front.port) as client,
    ):
        assert [(await client.get("/a/../b")).status for _ in range(3)] == [200] * 3
