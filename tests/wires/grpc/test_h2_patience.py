"""What we wait for, and for how long: all on a clock that the tests move."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.wires.grpc.h2.limits import Limits
from wires.grpc.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADERS,
    HELLO,
    NO_ERROR,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    Frame,
    block,
    frame,
    head,
    message,
    request,
    settings,
)
from wires.grpc.kit import EACH, LARGE, NOW, WAIT, WATCH, Answer, Bench, window

Benches = Callable[..., Bench]
EIGHT = b"\0" * 8


def goodbye(frames: list[Frame]) -> tuple[int, str] | None:
    return next(((each.code, each.text) for each in frames if each.kind == GOAWAY), None)


def open_and_reset(count: int, start: int = 1) -> list[bytes]:
    return [
        frame(HEADERS, END_HEADERS, stream, block(head(WAIT)))
        + frame(RST_STREAM, 0, stream, b"\0\0\0\x08")
        for stream in range(start, start + 2 * count, 2)
    ]


FLOODS = [
    ("resets", open_and_reset(2001), "too many streams are reset"),
    ("pings", [frame(PING, 0, 0, EIGHT)] * 1001, "too many frames that ask for nothing"),
    ("settings", [frame(SETTINGS)] * 1001, "too many frames that ask for nothing"),
    ("priorities", [frame(PRIORITY, 0, 9, b"\0\0\0\0\1")] * 1001,
     "too many frames that ask for nothing"),
    ("empty data", [frame(HEADERS, END_HEADERS, 1, block(head(NOW))), *[frame(DATA, 0, 1)] * 1001],
     "too many frames that ask for nothing"),
    ("continuations", [frame(HEADERS, 0, 1, b""), *[frame(CONTINUATION, 0, 1, b"")] * 9],
     "too many CONTINUATION frames"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("frames", "text"), [row[1:] for row in FLOODS], ids=[row[0] for row in FLOODS]
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_flood_is_cut_off(
    bench: Bench, frames: list[bytes], text: str, at_once: bool
) -> None:
    bench.say(hello=True)
    if at_once:
        heard = bench.say(b"".join(frames))
    else:
        heard = bench.say(*frames[:-2])
        assert goodbye(heard) is None
        heard = bench.say(*frames[-2:])
    assert goodbye(heard) == (ENHANCE_YOUR_CALM, text)
    assert bench.transport.state == "eof"
    assert bench.server.counts()["floods"] == 1


@pytest.mark.parametrize("name", ["resets", "pings"])
async def test_what_is_spread_over_time_is_no_flood(bench: Bench, name: str) -> None:
    bench.say(hello=True)
    for second in range(20):
        bench.clock.advance(1)
        resets, pings = open_and_reset(500, 1 + second * 1000), [frame(PING, 0, 0, EIGHT)] * 100
        assert goodbye(bench.say(b"".join(resets if name == "resets" else pings))) is None


# A field of 3,500 bytes that is put into the table, and the byte that stands for it from then on.
BOMB = b"\x40\x01x\x7f\xad\x1a" + b"y" * 3_500
AGAIN = b"\xbe"


@pytest.mark.parametrize(
    ("fields", "later"),
    [
        (BOMB + AGAIN * 10_000, b""),
        (BOMB + AGAIN * 10, b""),
        (BOMB, AGAIN * 10_000),
        (b"\0\1a\0" * 201, b""),
        (b"", b"\0\1a\0" * 201),
    ],
    ids=["a bomb", "a small bomb", "a bomb behind the body", "fields", "fields behind the body"],
)
async def test_a_header_list_far_over_the_limit_ends_the_connection(
    bench: Bench, fields: bytes, later: bytes
) -> None:
    """nghttp2 has to read all of it: 16 KB on the wire became 40 MB."""
    heard = bench.say(frame(HEADERS, END_HEADERS, 1, block(head(EACH)) + fields), hello=True)
    if later:
        assert goodbye(heard) is None
        heard = bench.say(frame(HEADERS, END_HEADERS | 1, 1, later))
    assert goodbye(heard) == (
        ENHANCE_YOUR_CALM, "the header fields are far too large or too many"
    )  # fmt: skip
    assert bench.server.counts()["floods"] == 1


async def test_header_lists_over_the_limit_are_refused_but_not_for_ever(bench: Bench) -> None:
    """Each has a few bytes on the wire, and 25 KB to be looked at."""
    bench.say(frame(HEADERS, END_HEADERS | 1, 1, block(head(NOW)) + BOMB), hello=True)
    data = block(head(NOW)) + AGAIN * 7
    answer = Answer(bench.say(frame(HEADERS, END_HEADERS | 1, 3, data)), 3)
    assert (answer.status, answer.text) == (8, "the header fields are too large or too many")
    heard = []
    for stream in range(5, 5000, 2):
        if bench.transport.state != "open":
            break
        heard = bench.say(frame(HEADERS, END_HEADERS | 1, stream, data))
    assert goodbye(heard) == (
        ENHANCE_YOUR_CALM, "the header fields are too large or too many, again and again"
    )  # fmt: skip
    assert stream > 3_000


async def test_streams_that_we_have_to_reset_count_too(bench: Bench) -> None:
    """A peer that breaks the rules of each stream makes us do the work of a reset flood."""
    bench.say(hello=True)
    heard = []
    for stream in range(1, 5000, 2):
        bad = frame(HEADERS, END_HEADERS, stream, block(head(WAIT))) + window(stream, 2**31 - 1)
        heard += bench.say(bad) if bench.transport.state == "open" else []
    assert goodbye(heard) == (ENHANCE_YOUR_CALM, "too many streams had to be reset")


async def test_who_does_not_say_hello_is_closed(benches: Benches) -> None:
    for data in ([], [PREFACE[:10]], [PREFACE], [HELLO[:-1]]):
        bench = benches()
        bench.say(*data)
        bench.wait(10)
        assert bench.transport.state == "open"
        bench.wait(1)
        assert bench.transport.state == "aborted"
        assert bench.server.counts()["slow"] == 1


async def test_a_body_that_does_not_come(bench: Bench) -> None:
    """Drop by drop does not help: the whole message has its time."""
    bench.say(frame(HEADERS, END_HEADERS, 1, block(head(NOW))), hello=True)
    bench.say(frame(DATA, 0, 1, message(b"", length=100)))
    for _ in range(15):
        assert bench.wait(1) == []
        bench.say(frame(DATA, 0, 1, b"x"))
    answer = Answer(bench.wait(1))
    assert (answer.status, answer.resets) == (4, [NO_ERROR])
    assert bench.server.counts()["slow"] == 1
    assert Answer(bench.say(request(NOW, b"y", 3)), 3).messages == [b"y"]


async def test_a_head_that_does_not_come(bench: Bench) -> None:
    bench.say(frame(HEADERS, 0, 1, block(head(NOW))[:20]), hello=True)
    assert bench.wait(15) == []
    assert goodbye(bench.wait(1)) == (ENHANCE_YOUR_CALM, "header fields took too long")


async def test_half_a_frame_of_head(bench: Bench) -> None:
    bench.say(frame(HEADERS, END_HEADERS, 1, block(head(NOW)))[:-10], hello=True)
    assert goodbye(bench.wait(16)) == (ENHANCE_YOUR_CALM, "header fields took too long")


async def test_a_stream_may_be_silent_but_not_halfway(benches: Benches) -> None:
    bench = benches(Limits(keepalive_seconds=10_000, idle_seconds=100))
    bench.say(frame(HEADERS, END_HEADERS, 1, block(head(EACH))), hello=True)
    assert Answer(bench.say(frame(DATA, 0, 1, message(b"one")))).messages == [b"one"]
    assert bench.wait(200) == []  # between messages, for as long as it likes
    bench.say(frame(DATA, 0, 1, message(b"two")[:6]))
    assert bench.wait(15) == []
    assert Answer(bench.wait(1)).fields == [
        {"grpc-status": "4", "grpc-message": "the request took too long to arrive"}
    ]


async def test_a_stream_has_a_deadline_too(bench: Bench) -> None:
    fields = head(EACH, ("grpc-timeout", "5S"))
    bench.say(frame(HEADERS, END_HEADERS, 1, block(fields)), hello=True)
    bench.say(frame(DATA, 0, 1, message(b"one")))
    assert bench.wait(5) == []
    assert Answer(bench.wait(1)).fields == [{"grpc-status": "4"}]


async def test_an_answer_that_is_not_taken(bench: Bench) -> None:
    """The peer gives no window, or a byte now and then: the stream is dropped, the others live."""
    bench.say(HELLO + settings(window=0), request(LARGE, b"1000"))
    for _ in range(30):
        bench.wait(1)
        bench.say(window(1, 1))
    assert Answer(bench.wait(1)).resets == [8]
    assert bench.protocol._session is not None
    assert bench.protocol._session.backlog < 200
    assert bench.server.open_streams == 0


async def test_a_watch_that_is_not_read_is_closed(bench: Bench) -> None:
    bench.say(HELLO + settings(window=0), request(WATCH, b"1000 1000"))
    await bench.settle()
    assert Answer(bench.wait(31)).resets == [8]
    await bench.settle()
    assert bench.echo.notes[-1] == "closed"


async def test_a_peer_that_does_not_read_is_not_read_from(benches: Benches) -> None:
    bench = benches(Limits(queued_bytes=10_000))
    bench.say(hello=True)
    bench.protocol.pause_writing()
    stream = 1
    while bench.transport.reading:
        assert stream < 1000
        assert bench.say(request(LARGE, b"1000", stream)) == []
        stream += 2
    assert 9 <= stream // 2 <= 11
    bench.protocol.resume_writing()
    assert len(bench.heard()) == 3 * (stream // 2)
    assert bench.transport.reading
    bench.protocol.pause_writing()
    bench.wait(30)
    assert bench.transport.state == "open"
    bench.wait(1)
    assert bench.transport.state == "aborted"


async def test_control_frames_wait_within_bounds_too(benches: Benches) -> None:
    bench = benches(Limits(queued_bytes=10_000))
    bench.say(hello=True)
    bench.protocol.pause_writing()
    bench.say(*[frame(PING, 0, 0, EIGHT)] * 500)
    assert not bench.transport.reading


async def test_silence_is_asked_whether_it_lives(bench: Bench) -> None:
    bench.say(request(WAIT, b""), hello=True)
    assert bench.wait(60) == []
    [ping] = bench.wait(1)
    assert (ping.kind, ping.flags) == (PING, 0)
    bench.say(frame(PING, 1, 0, ping.payload))
    assert [each.kind for each in bench.wait(61)] == [PING]
    bench.wait(19)
    assert bench.transport.state == "open"
    bench.wait(2)
    assert bench.transport.state == "aborted"


async def test_idleness_ends_politely(benches: Benches) -> None:
    """First "go elsewhere", a second later "no more": what is sent in between is answered."""
    bench = benches(Limits(idle_seconds=100))
    bench.say(request(NOW, b""), hello=True)
    for _ in range(100):
        assert bench.wait(1) == []
        bench.say(frame(PING, 0, 0, EIGHT))
    [notice] = bench.wait(1)
    assert (notice.kind, notice.code, notice.last_stream) == (GOAWAY, NO_ERROR, 2**31 - 1)
    assert Answer(bench.say(request(NOW, b"x", 3)), 3).messages == [b"x"]
    [last] = bench.wait(1)
    assert (last.kind, last.code, last.last_stream) == (GOAWAY, NO_ERROR, 3)
    assert bench.transport.state == "eof"


async def test_a_busy_connection_is_not_idle(benches: Benches) -> None:
    bench = benches(Limits(idle_seconds=100, keepalive_seconds=10_000))
    bench.say(request(WAIT, b""), hello=True)
    assert bench.wait(500) == []
    bench.echo.go_on.set()
    assert Answer(await bench.settle()).status == 0
    assert bench.wait(99) == []
    assert goodbye(bench.wait(2)) == (NO_ERROR, "")


async def test_a_peer_that_is_gone_when_we_say_goodbye(bench: Bench) -> None:
    def gone() -> None:
        raise OSError("not connected")

    bench.say(hello=True)
    bench.transport.write_eof = gone  # type: ignore[method-assign]  # as a socket may
    bench.protocol.leave()
    assert bench.transport.state == "aborted"


async def test_too_many_connections(benches: Benches) -> None:
    bench = benches(Limits(connections=1))
    other = bench.server.factory()
    transport = type(bench.transport)()
    other.connection_made(transport)
    assert transport.state == "closed"
    other.data_received(HELLO)
    other.connection_lost(None)
    assert Answer(bench.say(request(NOW, b"x"), hello=True)).messages == [b"x"]
    assert bench.server.counts()["turned_away"] == 1
    assert bench.server.connections == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"streams": 0}, ValueError),
        ({"message_bytes": -1}, ValueError),
        ({"idle_seconds": 0}, ValueError),
        ({"stall_seconds": float("nan")}, ValueError),
        ({"idle_seconds": float("inf")}, ValueError),
        ({"connections": 1.5}, TypeError),
        ({"connections": True}, TypeError),
        ({"idle_seconds": "1m"}, TypeError),
    ],
)
def test_limits_are_checked(options: dict[str, object], error: type[Exception]) -> None:
    [name] = options
    with pytest.raises(error, match=name):
        Limits(**options)  # type: ignore[arg-type]  # wrong on purpose
