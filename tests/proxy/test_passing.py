"""What a request becomes on its way to the server, and a response on its way back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.proxy_parts import Client, app_server, head_of, replying, running, scripted


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Tells what it was asked, as JSON."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    told = {
        "method": scope["method"],
        "path": scope["path"],
        "query": scope["query_string"].decode(),
        "fields": [[n.decode("latin-1"), v.decode("latin-1")] for n, v in scope["headers"]],
        "body": len(body),
    }
    answer = json.dumps(told).encode()
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-type", b"application/json"), (b"x-app", b"echo")],
        }
    )
    await send({"type": "http.response.body", "body": answer})


async def test_a_request_goes_to_a_real_server_and_back() -> None:
    async with app_server(echo) as port, running(port) as front, Client.to(front.port) as client:
        answer = await client.get("/a%20b//c?x=1&y=2", "X-Own: yes", "Cookie: a=1")
        told = json.loads(answer.body)
        fields = dict(told["fields"])
        assert (answer.status, answer["x-app"]) == (200, "echo")
        assert (told["method"], told["path"], told["query"]) == ("GET", "/a b//c", "x=1&y=2")
        assert fields["host"] == "example.com"
        assert fields["x-own"] == "yes"
        assert fields["cookie"] == "a=1"
        assert fields["x-forwarded-for"] == "127.0.0.1"
        assert fields["x-forwarded-host"] == "example.com"
        assert fields["x-forwarded-proto"] == "http"
        assert fields["forwarded"] == 'for=127.0.0.1;host="example.com";proto=http'
        assert fields["via"] == "1.1 penstock"
        assert answer["via"] == "1.1 penstock"
        assert answer["ratelimit-policy"].endswith(";q=1000000;w=1")


async def test_bodies_of_both_framings_arrive() -> None:
    async with app_server(echo) as port, running(port) as front, Client.to(front.port) as client:
        head = b"POST /x HTTP/1.1\r\nHost: a\r\n"
        answer = await client.ask(head + b"Content-Length: 5\r\n\r\nabcde")
        assert json.loads(answer.body)["body"] == 5
        chunks = b"3;ext=1\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
        answer = await client.ask(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        told = json.loads(answer.body)
        assert told["body"] == 7
        assert ["transfer-encoding", "chunked"] in told["fields"]
        answer = await client.ask(head + b"Content-Length: 0\r\n\r\n")
        assert ["content-length", "0"] in json.loads(answer.body)["fields"]


async def test_fields_of_one_connection_end_there() -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await head_of(reader))
        writer.write(
            b"HTTP/1.1 200 OK\r\nConnection: x-mine, keep-alive\r\nKeep-Alive: timeout=5\r\n"
            b"X-Mine: 1\r\nX-Yours: 2\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"
        )
        await reader.read()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        answer = await client.get(
            "/",
            "Connection: keep-alive, X-Secret",
            "Keep-Alive: 5",
            "X-Secret: 1",
            "TE: gzip, trailers",
            "Proxy-Authorization: x",
            "Proxy-Connection: keep-alive",
            "Upgrade: foo",
            "X-Kept: 1",
        )
        sent = seen[0].lower()
        for gone in (b"x-secret", b"keep-alive", b"proxy-", b"upgrade", b"connection:"):
            assert gone not in sent
        assert b"\r\nx-kept: 1\r\n" in sent
        assert b"\r\nte: trailers\r\n" in sent
        assert answer.get("x-yours") == "2"
        for name in ("x-mine", "keep-alive", "connection", "proxy-authenticate"):
            assert answer.get(name) is None


async def test_trailers_of_a_response_pass_and_those_of_a_request_do_not() -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        seen.append(await asyncio.wait_for(reader.readuntil(b"0\r\n"), 60))
        seen.append(await asyncio.wait_for(reader.readuntil(b"\r\n"), 60))
        writer.write(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
            b"2\r\nok\r\n0\r\nX-Sum: 7\r\nSet-Cookie: a=1\r\n\r\n"
        )
        await reader.read()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        answer = await client.ask(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n0\r\nX-Up: 1\r\nAuthorization: x\r\n\r\n"
        )
        assert seen == [b"3\r\nabc\r\n0\r\n", b"\r\n"]
        assert answer.body == b"ok"
        assert answer.trailers == [("X-Sum", "7")]
        assert answer["trailer"] == "X-Sum"


@pytest.mark.parametrize(
    ("request_line", "response", "status", "body", "length"),
    [
        (b"HEAD / HTTP/1.1", b"200 OK\r\nContent-Length: 1000", 200, b"", "1000"),
        (b"HEAD / HTTP/1.1", b"200 OK\r\nTransfer-Encoding: chunked", 200, b"", None),
        (b"GET / HTTP/1.1", b"204 No Content", 204, b"", None),
        (b"GET / HTTP/1.1", b"304 Not Modified\r\nContent-Length: 7", 304, b"", "7"),
        (b"GET / HTTP/1.1", b"200 OK\r\nContent-Length: 0", 200, b"", "0"),
    ],
)
async def test_responses_without_a_body(
    request_line: bytes, response: bytes, status: int, body: bytes, length: str | None
) -> None:
    server = replying(b"HTTP/1.1 " + response + b"\r\n\r\n")
    async with scripted(server) as port, running(port) as front, Client.to(front.port) as client:
        for _ in range(2):  # and both connections go on
            answer = await client.ask(request_line + b"\r\nHost: a\r\n\r\n", head=True)
            assert (answer.status, answer.body) == (status, body)
            assert answer.get("content-length") == length
        assert front.proxy.pool.opened == 1


async def test_a_response_that_ends_with_its_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.0 200 Fine\r\n\r\nall of it")

    async with scripted(serve) as port, running(port) as front:
        async with Client.to(front.port) as client:
            for _ in range(2):
                answer = await client.get()
                assert answer.body == b"all of it"
                assert answer["transfer-encoding"] == "chunked"
        async with Client.to(front.port) as client:
            await client.send(b"GET / HTTP/1.0\r\n\r\n")
            whole = await asyncio.wait_for(client.reader.read(), 60)
            assert whole.startswith(b"HTTP/1.1 200 Fine\r\n")
            assert whole.endswith(b"\r\n\r\nall of it")
            assert b"transfer-encoding" not in whole.lower()


async def test_http_1_0_keeps_a_connection_only_if_asked() -> None:
    server = replying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    async with scripted(server) as port, running(port) as front, Client.to(front.port) as client:
        answer = await client.ask(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert answer["connection"] == "keep-alive"
        answer = await client.ask(b"GET / HTTP/1.0\r\n\r\n")
        assert answer["connection"] == "close"
        assert await client.ended()


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with app_server(echo) as port, running(port) as front, Client.to(front.port) as client:
        many = [b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % n for n in range(20)]
        await client.send(b"".join(many))
        whole = b""
        while whole.count(b'"path"') < 20:
            whole += await client.read()
        at = [whole.index(b'"/%d"' % n) for n in range(20)]
        assert at == sorted(at)


async def test_interim_responses_pass() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(
            b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        )
        await reader.read()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        answer = await client.get()
        assert answer.interim == [103]
        assert answer.body == b"ok"


async def test_who_waits_for_100_is_told_by_the_server() -> None:
    async with app_server(echo) as port, running(port) as front, Client.to(front.port) as client:
        await client.send(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        )
        assert (await head_of(client.reader)).startswith(b"HTTP/1.1 100 ")
        answer = await client.ask(b"abc")
        assert json.loads(answer.body)["body"] == 3
        assert (await client.get()).status == 200


async def test_a_final_answer_instead_of_100_ends_the_connection() -> None:
    server = replying(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
    async with scripted(server) as port, running(port) as front, Client.to(front.port) as client:
        answer = await client.ask(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
        )
        assert (answer.status, answer.interim, answer["connection"]) == (413, [], "close")
        assert await client.ended()


async def test_a_whole_address_is_taken_apart() -> None:
    async with app_server(echo) as port, running(port) as front, Client.to(front.port) as client:
        answer = await client.ask(b"GET http://other.org?a=1 HTTP/1.1\r\nHost: example.com\r\n\r\n")
        told = json.loads(answer.body)
        assert (told["path"], told["query"]) == ("/", "a=1")
        assert dict(told["fields"])["host"] == "other.org"


async def test_options_goes_as_far_as_it_says() -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await head_of(reader))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await reader.read()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        line = b"OPTIONS * HTTP/1.1\r\nHost: a\r\nMax-Forwards: %d\r\n\r\n"
        assert (await client.ask(line % 0)).status == 200
        assert not seen
        assert (await client.ask(line % 3)).status == 204
        assert b"Max-Forwards: 2\r\n" in seen[0]
