"""The load generator against real servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from penstock.async_gate import AsyncGate
from penstock.limits import Limit
from penstock.loadgen.grpc import METHOD, GrpcConnection, GrpcTarget
from penstock.loadgen.http import HttpTarget
from penstock.loadgen.load import Load
from penstock.loadgen.report import accuracy_of, lines
from penstock.loadgen.requests import as_json, as_message, descriptors
from penstock.loadgen.scheduler import Run, Scheduler
from penstock.service.service import Service
from penstock.wires.http.messages import HttpRequest, HttpResponse
from penstock.wires.http.protocol import HttpServer

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
RULES = {"domain": "bench", "descriptors": [{"key": "user", "limits": "20/hour"}]}


@contextlib.asynccontextmanager
async def http_server(handler: Any) -> AsyncIterator[str]:
    server = HttpServer(handler)
    listener = await asyncio.get_running_loop().create_server(server.factory, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1/check"
    finally:
        listener.close()
        await server.drain(0.2)
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def scripted(serve: Serve) -> AsyncIterator[int]:
    """A server that does what the test says; its port. All of it has ended afterwards."""
    tasks: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await serve(reader, writer)
        finally:
            tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0.02)
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)


async def drive_http(url: str, load: Load, body: Callable[[int], bytes] | None = None) -> Run:
    body = body or (lambda key: as_json("bench", descriptors(key, ["user"])))
    target = HttpTarget(url, "POST", [body(key) for key in range(load.keys)], [("X-A", "b")])
    return await Scheduler(load, target.connect).run()


async def test_http_is_counted_and_measured() -> None:
    gate = AsyncGate.from_rules(RULES)
    seen: list[HttpRequest] = []

    async def handler(request: HttpRequest) -> HttpResponse:
        seen.append(request)
        asked = json.loads(request.body)
        verdict = await gate.check(*asked["descriptors"], domain=asked["domain"])
        return HttpResponse(200 if verdict else 429)

    async with http_server(handler) as url:
        run = await drive_http(url, Load(seconds=1, connections=3, streams=2, keys=5))
    counts = run.counts
    assert counts.answers == counts.sent == len(seen) > 100
    assert not counts.errors
    assert counts.allowed == 100
    assert counts.allowed_by_key == [20] * 5
    assert sum(counts.asked_by_key) == counts.sent
    assert 0 < counts.percentile(50) <= counts.percentile(99) <= counts.longest < 60
    assert seen[0].header("x-a") == "b"
    assert seen[0].header("content-type") == "application/json"
    # What is within the envelope, and what would not be.
    assert accuracy_of(run, Limit(20, "hour")).over == 0
    assert accuracy_of(run, Limit(19, "hour")).over == 5
    text = "\n".join(lines(run, Limit(19, "hour")))
    assert "5  keys" in text
    assert f"{counts.sent:,}" in text


async def test_a_stated_rate_is_kept() -> None:
    async with http_server(lambda request: HttpResponse(200)) as url:
        run = await drive_http(url, Load(seconds=0.5, rate=400, connections=2))
    assert run.counts.sent == 200
    assert run.counts.answers == 200
    assert (run.unsent, run.unanswered) == (0, 0)
    assert 0.4 < run.seconds < 3


@pytest.mark.parametrize(("rate", "slow"), [(100.0, True), (None, False)])
async def test_who_had_to_wait_because_the_service_stood_still_is_counted(
    rate: float | None, slow: bool
) -> None:
    """It stands still for 0.4 s of 0.8: with a rate, about half of all requests were due then."""
    start = None

    async def handler(request: HttpRequest) -> HttpResponse:
        nonlocal start
        now = asyncio.get_running_loop().time()
        start = start or now  # when the first one came
        now -= start
        if 0.2 < now < 0.6:
            await asyncio.sleep(0.6 - now)
        return HttpResponse(200)

    async with http_server(handler) as url:
        run = await drive_http(url, Load(seconds=0.8, rate=rate, connections=1))
    # One that asks as fast as it can asks once in that time, and thinks that all is well.
    assert (run.counts.percentile(80) > 0.1) is slow
    assert run.counts.longest > 0.3


async def test_a_service_that_is_too_slow_is_told_of() -> None:
    async def handler(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0.05)
        return HttpResponse(200)

    async with http_server(handler) as url:
        run = await drive_http(url, Load(seconds=0.3, rate=500, connections=1, patience=0.2))
    assert run.unsent > 50
    assert "the service is slower than --rate" in "\n".join(lines(run))


async def test_errors_are_counted_by_kind() -> None:
    async with http_server(lambda request: HttpResponse(500)) as url:
        run = await drive_http(url, Load(seconds=0.1, connections=1))
    assert run.counts.answers == 0
    assert set(run.counts.errors) == {"HTTP 500"}


async def test_a_connection_that_is_lost_is_made_again() -> None:
    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        for _ in range(5):
            await reader.readuntil(b"}")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            served += 1
        await reader.readuntil(b"}")
        writer.transport.abort()

    async with scripted(serve) as port:
        load = Load(seconds=0.4, connections=2, keys=1)
        run = await drive_http(f"http://127.0.0.1:{port}/", load, lambda key: b"{}")
    assert run.counts.answers == served > 15
    assert sum(run.counts.errors.values()) == run.counts.sent - run.counts.answers > 2


async def test_nobody_there() -> None:
    async with http_server(lambda request: HttpResponse(200)) as url:
        pass
    run = await drive_http(url, Load(seconds=0.1))
    assert "refused" in run.trouble
    assert run.counts.sent == 0


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "ftp://a/", "http://", "http://a:b/"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match="URL must be like"):
        HttpTarget(url, "GET", [b""], [])


# gRPC --------------------------------------------------------------------------------------


@contextlib.contextmanager
def grpcio_server(answer: Callable[[bytes, grpc.ServicerContext], bytes]) -> Any:
    """A server that is not ours; its address."""
    service, _, name = METHOD[1:].partition("/")
    handler = grpc.method_handlers_generic_handler(
        service, {name: grpc.unary_unary_rpc_method_handler(answer)}
    )
    server = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


async def drive_grpc(address: str, load: Load, names: list[str] | None = None) -> Run:
    messages = [as_message("bench", descriptors(k, names or ["user"])) for k in range(load.keys)]
    return await Scheduler(load, GrpcTarget(address, messages).connect).run()


async def test_grpc_is_counted_and_measured() -> None:
    service = Service(AsyncGate.from_rules(RULES))
    with grpcio_server(lambda message, context: bytes(service.rate_limit(message))) as address:
        run = await drive_grpc(address, Load(seconds=1, connections=2, streams=16, keys=1))
    counts = run.counts
    assert counts.answers == counts.sent > 20
    assert not counts.errors
    assert counts.allowed_by_key == [20]
    assert counts.refused == counts.sent - 20
    assert 0 < counts.percentile(50) <= counts.percentile(99) <= counts.longest < 60


async def test_grpc_at_a_rate_with_three_descriptors() -> None:
    def answer(message: bytes, context: grpc.ServicerContext) -> bytes:
        whole = all(name in message for name in (b"user", b"remote_address", b"path"))
        return b"\x08\x02" if whole else b"\x08\x01"

    with grpcio_server(answer) as address:
        load = Load(seconds=0.4, rate=250, connections=2, streams=4)
        run = await drive_grpc(address, load, ["user", "remote_address", "path"])
    assert run.counts.refused == run.counts.sent == 100


async def test_errors_of_grpc_have_their_words() -> None:
    words = "no domain 'bench': 100% wrong, ~ [x] {y} <z> \\ ^ ` |"

    def answer(message: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, words)
        raise AssertionError

    with grpcio_server(answer) as address:
        run = await drive_grpc(address, Load(seconds=0.2, connections=1, streams=2))
    assert run.counts.answers == 0
    (kind,) = run.counts.errors
    assert kind.startswith("gRPC 3: no domain 'bench': 100%")


async def test_another_method_is_unimplemented() -> None:
    with grpcio_server(lambda message, context: b"") as address:
        target = GrpcTarget(address, [b""], "/none/None")
        run = await Scheduler(Load(seconds=0.1, connections=1, keys=1), target.connect).run()
    assert all(kind.startswith("gRPC 12") for kind in run.counts.errors)
    assert run.counts.errors


async def test_an_answer_without_a_code_is_an_error() -> None:
    with grpcio_server(lambda message, context: b"") as address:
        run = await drive_grpc(address, Load(seconds=0.1, connections=1, keys=1))
    assert set(run.counts.errors) == {"an answer without a code"}


async def test_what_speaks_no_http_2_is_told() -> None:
    async with http_server(lambda request: HttpResponse(200)) as url:
        address = url.removeprefix("http://").partition("/")[0]
        run = await drive_grpc(address, Load(seconds=0.1, connections=1))
    assert "HTTP/2" in run.trouble


async def test_our_own_wire_with_frames_in_pieces() -> None:
    """Over nghttp2, which codes headers with Huffman's code and its table, through a relay
    that tears everything into pieces of a few bytes."""
    h2 = pytest.importorskip("penstock.wires.grpc.h2.server")
    from penstock.service.grpc_status import GrpcError
    from penstock.wires.grpc.methods import Methods

    service = Service(AsyncGate.from_rules(RULES))

    def answer(message: bytes) -> Any:
        if b"key-3" in message:
            raise GrpcError(3, "key-3 is not liked")
        return service.rate_limit(message)

    server = h2.H2Server(Methods(unary={METHOD: answer}))
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(server.factory, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, n: int) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(n):
                writer.write(data)
                await asyncio.sleep(0)
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upper, lower = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, lower, 4096), pump(upper, writer, 7))

    async with scripted(relay) as between:
        load = Load(seconds=1, connections=2, streams=8, keys=4)
        run = await drive_grpc(f"127.0.0.1:{between}", load)
    listener.close()
    await server.drain(0.2)
    await asyncio.sleep(0.05)
    assert set(run.counts.errors) == {"gRPC 3: key-3 is not liked"}
    assert run.counts.allowed_by_key == [20, 20, 20, 0]
    assert run.counts.answers + sum(run.counts.errors.values()) == run.counts.sent


async def test_a_block_means_what_the_table_says_now() -> None:
    drive = Scheduler(Load(keys=1), GrpcTarget("a:1", [b""]).connect)
    connection = GrpcConnection(drive, GrpcTarget("a:1", [b""]))
    remembered, latest = b"\x40\x0bgrpc-status\x01", b"\xbe"
    connection._status(remembered + b"0")
    assert [connection._status(latest) for _ in range(2)] == [None, None]
    connection._status(remembered + b"5")
    assert connection._status(latest) == "gRPC 5"
    connection.settled.cancel()


@pytest.mark.parametrize("address", ["", "8081", ":8081", "a:b", "a:0", "a:99999"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        GrpcTarget(address, [b""])
