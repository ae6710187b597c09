"""Requests as a client may send them, right and wrong, frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from penstock.server.wires.h2.limits import Limits
from penstock.server.wires.methods import Methods
from server.wires.frames import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    HELLO,
    PADDED,
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
from server.wires.kit import EACH, LARGE, LATER, NOW, WAIT, WATCH, Answer, Bench, window

Benches = Callable[..., Bench]
OPEN = frame(HEADERS, END_HEADERS, 1, block(head(NOW)))


def ask(fields: list[tuple[str, str]], *body: bytes) -> bytes:
    """A request whose body comes in these DATA frames."""
    last = len(body) - 1
    return frame(HEADERS, END_HEADERS | (not body), 1, block(fields)) + b"".join(
        frame(DATA, END_STREAM if i == last else 0, 1, each) for i, each in enumerate(body)
    )


HI = message(b"hi")
RIGHT = [
    ("in one frame", ask(head(NOW), HI)),
    ("the prefix alone", ask(head(NOW), HI[:5], HI[5:])),
    ("byte by byte", ask(head(NOW), *[bytes([b]) for b in HI])),
    ("ended by an empty frame", ask(head(NOW), HI, b"")),
    ("ended by trailers", ask(head(NOW), HI, b"")[:-9]
     + frame(HEADERS, END_HEADERS | END_STREAM, 1, block([("x", "y")]))),
    ("with padding", frame(HEADERS, END_HEADERS, 1, block(head(NOW)))
     + frame(DATA, END_STREAM | PADDED, 1, b"\x09" + HI + b"\0" * 9)),
    ("a head in pieces", frame(HEADERS, 0, 1, block(head(NOW))[:20])
     + frame(CONTINUATION, 0, 1, block(head(NOW))[20:30])
     + frame(CONTINUATION, END_HEADERS, 1, block(head(NOW))[30:])
     + frame(DATA, END_STREAM, 1, HI)),
    ("+proto", ask(head(NOW, content_type="application/grpc+proto"), HI)),
    ("a parameter", ask(head(NOW, content_type="application/grpc; charset=utf-8"), HI)),
    ("without te", ask(head(NOW, drop=["te"]), HI)),
    ("identity", ask(head(NOW, ("grpc-encoding", "identity")), HI)),
    ("could compress, does not", ask(head(NOW, ("grpc-encoding", "gzip")), HI)),
    ("a timeout", ask(head(NOW, ("grpc-timeout", "99999999H")), HI)),
    ("a timeout that is over", ask(head(NOW, ("grpc-timeout", "0n")), HI)),
    ("other fields", ask(head(NOW, ("user-agent", "x"), ("a-bin", "AAA="), ("b", "")), HI)),
]  # fmt: skip


@pytest.mark.parametrize(("data"), [d for _, d in RIGHT], ids=[name for name, _ in RIGHT])
@pytest.mark.parametrize("in_pieces", [False, True])
async def test_right_requests(bench: Bench, data: bytes, in_pieces: bool) -> None:
    pieces = [bytes([b]) for b in HELLO + data] if in_pieces else [HELLO + data]
    answer = Answer(bench.say(*pieces))
    assert answer.frames == [HEADERS, DATA, HEADERS]
    assert answer.fields == [
        {":status": "200", "content-type": "application/grpc"},
        {"grpc-status": "0"},
    ]
    assert answer.messages == [b"hi"]
    assert answer.resets == []
    assert bench.server.open_streams == 0


WRONG = [
    ("unknown method", ask(head("/test.Echo/Nope"), HI), 12, "no such method"),
    ("a longer path", ask(head(NOW + "/"), HI), 12, "no such method"),
    ("root", ask(head("/"), HI), 12, "no such method"),
    ("no message", ask(head(NOW)), 13, "missing"),
    ("an empty body", ask(head(NOW), b""), 13, "missing"),
    ("half a prefix", ask(head(NOW), HI[:3]), 13, "not complete"),
    ("half a message", ask(head(NOW), HI[:6]), 13, "not complete"),
    ("less than it says", ask(head(NOW), message(b"hi", length=3)), 13, "not complete"),
    ("more than it says", ask(head(NOW), message(b"hi", length=1)), 13, "more than one"),
    ("two messages", ask(head(NOW), HI + HI), 13, "more than one"),
    ("two messages in two frames", ask(head(NOW), HI, HI), 13, "more than one"),
    ("two messages to a watch", ask(head(WATCH), HI, HI), 13, "more than one"),
    ("too large", ask(head(NOW), message(b"", length=2**20 + 1)), 8, "too large"),
    ("4 GB", ask(head(NOW), message(b"", length=2**32 - 1)), 8, "too large"),
    ("4 GB to a stream", ask(head(EACH), message(b"", length=2**32 - 1)), 8, "too large"),
    ("compressed", ask(head(NOW, ("grpc-encoding", "gzip")), message(b"hi", flag=1)), 12,
     "not supported"),
    ("compressed, in a stream", ask(head(EACH, ("grpc-encoding", "gzip")), message(b"hi", flag=1)),
     12, "not supported"),
    ("compressed somehow", ask(head(NOW), message(b"hi", flag=1)), 13, "grpc-encoding"),
    ("compressed as identity", ask(head(NOW, ("grpc-encoding", "identity")),
     message(b"hi", flag=1)), 13, "grpc-encoding"),
    ("a strange flag", ask(head(NOW), message(b"hi", flag=2)), 13, "0 or 1"),
    ("half a message in a stream", ask(head(EACH), HI[:6]), 13, "not complete"),
    *[(f"a timeout of {text!r}", ask(head(NOW, ("grpc-timeout", text)), HI), 13, "grpc-timeout")
      for text in ("", "5", "S", "-1S", "1.5S", "1s", "123456789S", "1 S", "\xb9S")],
    ("large fields", ask(head(NOW, ("x", "y" * 16384)), HI), 8, "header fields"),
    ("many fields", ask(head(NOW, *[(f"x{i}", "") for i in range(100)]), HI), 8, "header fields"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "status", "text"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
async def test_wrong_requests(bench: Bench, data: bytes, status: int, text: str) -> None:
    frames = data
    if len(data) > 16384:  # larger than a frame may be
        fields = data[9 : 9 + int.from_bytes(data[:3])]
        frames = frame(HEADERS, 0, 1, fields[:16000])
        frames += frame(CONTINUATION, END_HEADERS, 1, fields[16000:])
        frames += data[9 + len(fields) :]
    answer = Answer(bench.say(frames, hello=True))
    assert answer.http == "200"
    assert answer.status == status
    assert text in answer.text
    assert bench.echo.calls == 0
    assert bench.server.counts()["refused"] == 1
    again = Answer(bench.say(request(NOW, b"still here", 3)), 3)
    assert again.messages == [b"still here"]
    assert bench.server.open_streams == 0


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        (head(NOW, method="GET"), "405", {"allow": "POST"}),
        (head(NOW, method="PUT"), "405", {"allow": "POST"}),
        (head(NOW, method="post"), "405", {"allow": "POST"}),
        (head("/", method="GET", drop=["content-type"]), "405", {"allow": "POST"}),
        (head(NOW, drop=["content-type"]), "415", {"accept": "application/grpc"}),
        (head(NOW, content_type="application/json"), "415", {"accept": "application/grpc"}),
        (head(NOW, content_type="application/grpcx"), "415", {"accept": "application/grpc"}),
        (head(NOW, content_type="application/grpc+json"), "415", {"accept": "application/grpc"}),
        (head(NOW, content_type="application/grp"), "415", {"accept": "application/grpc"}),
    ],
)
async def test_what_is_not_grpc_gets_a_status_of_http(
    bench: Bench, fields: list[tuple[str, str]], status: str, says: dict[str, str]
) -> None:
    answer = Answer(bench.say(ask(fields, HI), hello=True))
    assert answer.fields == [{":status": status, **says}]
    assert answer.ended


async def test_compression_is_refused_with_what_is_taken(bench: Bench) -> None:
    data = ask(head(NOW, ("grpc-encoding", "gzip")), message(b"hi", flag=1))
    answer = Answer(bench.say(data, hello=True))
    assert answer.fields[0]["grpc-accept-encoding"] == "identity"


async def test_who_is_refused_need_not_send_the_rest(bench: Bench) -> None:
    """A reset without an error follows the answer, and what is on its way is let pass."""
    answer = Answer(bench.say(frame(HEADERS, END_HEADERS, 1, block(head("/no/No"))), hello=True))
    assert (answer.status, answer.resets) == (12, [0])
    assert bench.say(frame(DATA, 0, 1, HI), frame(DATA, END_STREAM, 1, HI)) == []
    assert Answer(bench.say(request(NOW, b"x", 3)), 3).messages == [b"x"]


async def test_trailers_of_a_client_are_bounded(bench: Bench) -> None:
    bench.say(OPEN, hello=True)
    many = block([(f"x{i}", "") for i in range(200)])
    answer = Answer(bench.say(frame(HEADERS, END_HEADERS | END_STREAM, 1, many)))
    assert answer.status == 8


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
    bench.say(ask(head(WAIT, ("grpc-timeout", "5m")), HI), hello=True)
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


async def test_answers_of_one_turn_are_written_at_once(bench: Bench) -> None:
    writes = []
    bench.transport.write = writes.append  # type: ignore[method-assign]  # to count them
    bench.say(HELLO + b"".join(request(NOW, b"x", stream) for stream in range(1, 101, 2)))
    assert len(writes) == 1
    bench.say(b"".join(request(LATER, b"x", stream) for stream in range(101, 201, 2)))
    await bench.settle()
    assert len(writes) == 2
