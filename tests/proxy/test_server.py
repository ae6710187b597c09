"""The server behind the proxy: connections that are used again, and servers that fail."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest

from penstock.proxy.limits import ProxyLimits
from penstock.proxy.target import Target
from proxy.proxy_parts import Client, head_of, replying, running, scripted

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def test_connections_are_used_again() -> None:
    async with scripted(replying(OK)) as port, running(port) as front:
        for _ in range(3):
            async with Client.to(front.port) as client:
                for _ in range(5):
                    assert (await client.get()).body == b"ok"
        assert front.proxy.pool.opened == 1
        async with Client.to(front.port) as one, Client.to(front.port) as two:
            await asyncio.gather(one.get(), two.get())
        assert front.proxy.pool.opened == 2


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
async def test_a_server_that_will_close_is_not_asked_again(response: bytes) -> None:
    async with scripted(replying(response)) as port, running(port) as front:
        async with Client.to(front.port) as client:
            for _ in range(3):
                assert (await client.get()).body == b"ok"
        assert front.proxy.pool.opened == 3


def closing_after_one(asked: list[bytes]) -> object:
    """Says that it keeps a connection, and closes it when it is asked again."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await head_of(reader))
        writer.write(OK)
        asked.append(await head_of(reader))
        writer.transport.abort()

    return serve


async def test_a_stale_connection_is_tried_once_more_where_that_is_harmless() -> None:
    asked: list[bytes] = []
    async with scripted(closing_after_one(asked)) as port, running(port) as front:
        async with Client.to(front.port) as client:
            for _ in range(3):
                assert (await client.get()).body == b"ok"
        assert len(asked) == 5  # the second and the third had to be asked twice


async def test_what_cannot_be_said_twice_is_not() -> None:
    asked: list[bytes] = []
    post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
    async with scripted(closing_after_one(asked)) as port:
        async with running(port) as front, Client.to(front.port) as client:
            assert (await client.ask(post)).status == 200
            assert (await client.ask(post)).status == 502
            assert len(asked) == 2
        # Nor does it take the risk, if the connection has rested for a while.
        limits = ProxyLimits(fresh_time=0.0)
        async with running(port, limits=limits) as front, Client.to(front.port) as client:
            for _ in range(3):
                assert (await client.ask(post)).status == 200


async def test_a_server_that_closes_while_it_rests_is_forgotten() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(OK)
        await asyncio.sleep(0.02)

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        await client.get()
        assert front.proxy.pool.resting == 1
        async with asyncio.timeout(60):
            while front.proxy.pool.resting:
                await asyncio.sleep(0.01)
        post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
        assert (await client.ask(post)).status == 200


async def test_who_rests_for_long_is_closed() -> None:
    limits = ProxyLimits(rest_time=0.01)
    async with (
        scripted(replying(OK)) as port,
        running(port, limits=limits) as front,
        Client.to(front.port) as client,
    ):
        await client.get()
        await asyncio.sleep(0.05)
        front.proxy.sweep()
        assert front.proxy.pool.resting == 0
        await client.get()
        assert front.proxy.pool.opened == 2


async def test_no_server_is_a_502_and_the_client_may_go_on() -> None:
    async with scripted(replying(OK)) as port:
        pass
    async with running(port) as front, Client.to(front.port) as client:
        for _ in range(2):
            answer = await client.get()
            assert (answer.status, answer.body) == (502, b'{"error":"Bad gateway"}')
            assert answer.get("ratelimit") is not None
        assert front.proxy.failed == 2


async def test_a_server_that_says_nothing_is_a_504() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    limits = ProxyLimits(response_time=0.05)
    async with (
        scripted(serve) as port,
        running(port, limits=limits) as front,
        Client.to(front.port) as client,
    ):
        waiting = asyncio.create_task(client.get())
        await asyncio.sleep(0.15)
        front.proxy.sweep()
        assert (await waiting).status == 504


async def test_a_server_that_cannot_be_connected_to_in_time_is_a_504() -> None:
    limits = ProxyLimits(connect_time=0.05)
    # Of the networks for documentation: nobody answers, or nobody can be asked.
    async with (
        running("http://192.0.2.1:9", limits=limits) as front,
        Client.to(front.port) as client,
    ):
        assert (await client.get()).status in (502, 504)


@pytest.mark.parametrize(
    "begun",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ],
)
@pytest.mark.parametrize("reset", [True, False])
async def test_a_server_that_dies_in_a_response_is_seen_by_the_client(
    begun: bytes, reset: bool
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(begun)
        await asyncio.sleep(0.05)
        if reset:
            writer.transport.abort()

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        with pytest.raises(ConnectionError, match="not whole"):
            await client.get()
        assert front.proxy.pool.resting == 0


async def test_half_a_response_to_http_1_0_ends_in_a_reset() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        await asyncio.sleep(0.05)

    async with scripted(serve) as port, running(port) as front, Client.to(front.port) as client:
        await client.send(b"GET / HTTP/1.0\r\n\r\n")
        await head_of(client.reader)
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(client.reader.read(), 60)


async def test_a_unix_socket(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(OK)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_unix_server(serve, tmp_path / "app.sock")
    async with running(f"unix:{tmp_path}/app.sock") as front, Client.to(front.port) as client:
        assert (await client.get()).body == b"ok"
    server.close()


async def test_tls_to_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key),
         "-out", str(cert), "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        capture_output=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(OK)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with running(f"https://localhost:{port}") as front, Client.to(front.port) as client:
        assert (await client.get()).status == 502  # nobody vouches for it
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    async with running(f"https://localhost:{port}") as front, Client.to(front.port) as client:
        assert (await client.get()).body == b"ok"
    server.close()


@pytest.mark.parametrize(
    "text",
    ["", "127.0.0.1:9000", "ftp://a", "http://", "http://a:b", "http://a/path", "http://u@a",
     "http://a?x", "unix:", "http://a:99999"],
)  # fmt: skip
def test_what_is_no_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="upstream is"):
        Target(text)
