"""Calls that take their time, answers that wait for room, and what a method may do meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from penstock.wires.grpc.h2.limits import Limits
from penstock.wires.grpc.methods import Methods
from wires.grpc.frames import (
    ACK,
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    HELLO,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    frame,
    head,
    message,
    request,
    settings,
)
from wires.grpc.kit import EACH, LARGE, LATER, NOW, WAIT, WATCH, Answer, Bench, window

Benches = Callable[..., Bench]


async def test_streams_beyond_the_limit_are_refused(benches: Benches) -> None:
    """Softly while the peer may not know the limit; else it breaks the protocol."""
    bench = benches(Limits(streams=3))
    bench.say(b"".join(request(WAIT, b"", stream) for stream in (1, 3, 5)), hello=True)
    [refused] = bench.say(request(WAIT, b"", 7))
    assert (refused.kind, refused.stream, refused.code) == (RST_STREAM, 7, REFUSED_STREAM)
    bench.say(frame(SETTINGS, ACK))
    [bye] = bench.say(request(WAIT, b"", 9))
    assert (bye.kind, bye.code) == (GOAWAY, PROTOCOL_ERROR)
    await bench.settle()
    assert bench.echo.notes == ["waits"] * 3


async def test_a_call_that_takes_its_time(bench: Bench) -> None:
    assert Answer(bench.say(request(LATER, b"x"), hello=True)).frames == []
    assert Answer(await bench.settle()).messages == [b"x"]


async def test_a_stream_that_is_reset_cancels_its_call(bench: Bench) -> None:
    bench.say(request(WAIT, b"x"), hello=True)
    await bench.settle()
    assert bench.say(frame(RST_STREAM, 0, 1, CANCEL.to_bytes(4))) == []
    assert await bench.settle() == []
    assert bench.echo.notes == ["waits", "cancelled"]
    assert Answer(bench.say(request(NOW, b"y", 3)), 3).messages == [b"y"]


async def test_a_stream_that_is_reset_at_once_is_not_called(bench: Bench) -> None:
    bench.say(request(NOW, b"x") + frame(RST_STREAM, 0, 1, CANCEL.to_bytes(4)), hello=True)
    assert bench.echo.calls == 0
    assert bench.server.counts()["resets"] == 1


async def test_a_deadline(bench: Bench) -> None:
    bench.say(
        frame(HEADERS, END_HEADERS, 1, block(head(WAIT, ("grpc-timeout", "5m"))))
        + frame(DATA, END_STREAM, 1, message(b"hi")),
        hello=True,
    )
    await asyncio.sleep(0.05)
    answer = Answer(bench.heard())
    assert (answer.status, answer.frames) == (4, [HEADERS])
    assert bench.echo.notes == ["waits", "cancelled"]


async def test_a_connection_that_is_lost_cancels_its_calls(bench: Bench) -> None:
    bench.say(request(WAIT, b"x"), request(WATCH, b"1 1 wait", 3), hello=True)
    await bench.settle()
    bench.protocol.connection_lost(None)
    bench.echo.go_on.set()
    await bench.settle()
    assert bench.echo.notes == ["waits", "sends 0", "cancelled", "closed"]
    assert bench.server.connections == 0


async def test_answers_wait_for_the_peer_to_have_room(bench: Bench) -> None:
    """As many bytes as its window has; a stream that has room is not held up."""
    bench.say(HELLO + settings(window=10))
    frames = bench.say(request(LARGE, b"100"), request(NOW, b"x", 3))
    assert Answer(frames, 3).messages == [b"x"]
    sizes = [len(Answer(frames).body)]
    for more in (50, 44, 1):
        assert not Answer(frames).ended
        frames += bench.say(window(1, more))
        sizes.append(len(Answer(frames).body))
    assert sizes == [10, 60, 104, 105]
    assert Answer(frames).status == 0


async def test_a_watch_stops_while_the_peer_has_no_room(benches: Benches) -> None:
    bench = benches(Limits(stream_bytes=1000))
    bench.say(HELLO + settings(window=0), request(WATCH, b"100 100"))
    frames = await bench.settle()
    assert len(bench.echo.notes) == 10  # of 106 or so bytes
    for _ in range(22):
        bench.protocol.data_received(window(1, 500))
        frames += await bench.settle()
        assert len(bench.echo.notes) * 106 <= len(Answer(frames).body) + 1300
    assert Answer(frames).status == 0
    assert len(Answer(frames).messages) == 100


async def test_each_stops_while_the_peer_does_not_read(benches: Benches) -> None:
    """It calls no more, and gives no window back: the peer can send 64 KB and no more."""
    bench = benches(Limits(stream_bytes=1000))
    bench.say(HELLO + settings(window=0), frame(HEADERS, END_HEADERS, 1, block(head(EACH))))
    sent = message(b"large 500")
    frames = []
    for _ in range(1000):
        frames += bench.say(frame(DATA, 0, 1, sent))
    assert bench.echo.calls == 2
    assert not [each for each in frames if each.kind == 8 and each.stream == 1]
    frames += bench.say(window(1, 10_000_000), window(0, 10_000_000))
    frames += bench.say(frame(DATA, END_STREAM, 1, b""))
    assert bench.echo.calls == 1000
    assert len(Answer(frames).messages) == 1000
    assert Answer(frames).status == 0


@pytest.mark.parametrize("path", [NOW, EACH])
async def test_a_message_larger_than_a_window_gets_through(bench: Bench, path: str) -> None:
    """The window is given back while the message comes."""
    bench.say(frame(HEADERS, END_HEADERS, 1, block(head(path))), hello=True)
    room, rest = 65535, message(b"x" * 300_000)
    while rest:
        size = min(16384, room, len(rest))
        assert size, "the window is closed for ever"
        heard = bench.say(frame(DATA, 0, 1, rest[:size]))
        given = [f.payload for f in heard if f.kind == WINDOW_UPDATE and f.stream == 1]
        room += sum(int.from_bytes(each) for each in given) - size
        rest = rest[size:]
    bench.say(frame(DATA, END_STREAM, 1, b""))
    assert bench.echo.calls == 1


async def test_a_connection_can_send_for_ever(bench: Bench) -> None:
    """What is answered, and what is refused, gives its bytes back to the connection's window."""
    room = 65535 + sum(
        int.from_bytes(each.payload)
        for each in bench.say(hello=True)
        if each.kind == WINDOW_UPDATE and each.stream == 0
    )
    for stream in range(1, 401, 2):
        path = NOW if stream % 4 == 1 else "/no.Such/Method"
        heard = bench.say(request(path, b"x" * 16000, stream))
        room -= 16005
        assert room > 0, "the window is closed for ever"
        for each in heard:
            if each.kind == WINDOW_UPDATE and each.stream == 0:
                room += int.from_bytes(each.payload)
    assert bench.echo.calls == 100


async def test_what_a_connection_can_make_us_keep_is_bounded(benches: Benches) -> None:
    bench = benches(Limits(held_bytes=100_000))
    bench.say(hello=True)
    refused = 0
    for stream in range(1, 41, 2):
        start = frame(HEADERS, END_HEADERS, stream, block(head(NOW)))
        heard = bench.say(start + frame(DATA, 0, stream, message(b"x" * 9000, length=20_000)))
        refused += any("grpc-status" in each.fields for each in heard)
    assert refused == 20 - 100_000 // 9005
    assert bench.protocol._session is not None
    assert bench.protocol._session.backlog < 110_000


async def test_answers_that_nobody_takes_are_bounded(benches: Benches) -> None:
    bench = benches(Limits(held_bytes=100_000))
    bench.say(HELLO + settings(window=0))
    statuses = [
        Answer(bench.say(request(LARGE, b"9000", stream)), stream).fields[-1].get("grpc-status")
        for stream in range(1, 41, 2)
    ]
    assert statuses == [None] * 11 + ["8"] * 9


async def test_a_method_may_close_its_own_connection(benches: Benches) -> None:
    """Or do anything else to it: nghttp2 is never at work while a method is."""
    bench: Bench

    def close(message: bytes) -> bytes:
        bench.protocol.connection_lost(None)
        return b"nobody hears it"

    def feed(message: bytes) -> bytes:
        bench.protocol.data_received(request("/a.B/Plain", b"inner", 5))
        return b"outer"

    def plain(message: bytes) -> bytes:
        return message

    async def coroutine() -> bytes:
        return b""

    def close_later(message: bytes) -> object:
        bench.protocol.connection_lost(None)
        return coroutine()

    methods = Methods(
        unary={
            "/a.B/Close": close,
            "/a.B/Feed": feed,
            "/a.B/Plain": plain,
            "/a.B/Later": close_later,  # type: ignore[dict-item]  # bytes or not
        },
        each={"/a.B/Each": close},
    )
    bench = benches(methods=methods)
    frames = bench.say(request("/a.B/Feed", b"", 3), hello=True)
    assert Answer(frames, 3).messages == [b"outer"]
    assert Answer(frames, 5).messages == [b"inner"]
    requests = request("/a.B/Close", b"", 7) + request("/a.B/Plain", b"", 9)
    assert bench.say(requests) == []
    for path in ("/a.B/Later", "/a.B/Each"):
        bench = benches(methods=methods)
        assert Answer(bench.say(request(path, b"x"), hello=True)).frames == []
        await bench.settle()


async def test_a_method_during_which_its_stream_goes(benches: Benches) -> None:
    bench: Bench

    def reset(data: bytes) -> bytes:
        bench.protocol.data_received(frame(RST_STREAM, 0, int(data), CANCEL.to_bytes(4)))
        return b"nobody hears it"

    bench = benches(methods=Methods(unary={"/a.B/One": reset}, each={"/a.B/Each": reset}))
    bench.say(hello=True)
    for stream, path in ((1, "/a.B/One"), (3, "/a.B/Each")):
        opened = frame(HEADERS, END_HEADERS, stream, block(head(path)))
        text = message(b"%d" % stream)
        twice = text + text if path == "/a.B/Each" else text
        assert bench.say(opened + frame(DATA, END_STREAM, stream, twice)) == []
        assert bench.server.open_streams == 0
    assert bench.server.counts()["messages"] == 2  # the second message was for nobody


async def test_answers_of_one_turn_are_written_at_once(bench: Bench) -> None:
    writes = []
    bench.transport.write = writes.append  # type: ignore[method-assign]  # to count them
    bench.say(HELLO + b"".join(request(NOW, b"x", stream) for stream in range(1, 101, 2)))
    assert len(writes) == 1
    bench.say(b"".join(request(LATER, b"x", stream) for stream in range(101, 201, 2)))
    await bench.settle()
    assert len(writes) == 2
