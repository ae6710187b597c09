"""Bidirectional streams over nghttp2, frame by frame: windows, confirmations, bounds, time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from penstock.service.rlqs.interface import QuotaWire
from penstock.wires.grpc.h2.limits import Limits
from penstock.wires.grpc.methods import Methods
from wires.grpc.frames import (
    ACK,
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADERS,
    HELLO,
    PING,
    RST_STREAM,
    WINDOW_UPDATE,
    Frame,
    block,
    frame,
    head,
    message,
    request,
    settings,
)
from wires.grpc.kit import BIDI, NOW, Answer, Bench, window
from wires.grpc.quota_echo import EchoStream

Benches = Callable[..., Bench]


def opened(stream: int = 1, *more: tuple[str, str], flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, block(head(BIDI, *more)))


def said(*texts: bytes, stream: int = 1, flags: int = 0) -> bytes:
    return frame(DATA, flags, stream, b"".join(message(text) for text in texts))


def pings(frames: list[Frame]) -> list[bytes]:
    return [each.payload for each in frames if each.kind == PING and not each.flags & ACK]


def answer(ping: bytes) -> bytes:
    return frame(PING, ACK, 0, ping)


def streams(bench: Bench) -> list[EchoStream]:
    return bench.echo.quota.streams


async def test_a_message_in_many_pieces(bench: Bench) -> None:
    bench.say(opened(), hello=True)
    for byte in message(b"in pieces"):
        heard = bench.say(frame(DATA, 0, 1, bytes([byte])))
    assert Answer(heard).messages == [b"in pieces"]
    heard = bench.say(said(b"1", b"2", b"3") + frame(DATA, END_STREAM, 1, b""))
    assert Answer(heard).messages == [b"1", b"2", b"3"]
    assert Answer(heard).status == 0
    assert streams(bench)[0].over == 1
    assert bench.server.open_streams == bench.server.open_bidi_streams == 0


async def test_a_stream_without_a_message(bench: Bench) -> None:
    frames = bench.say(opened(flags=END_HEADERS | END_STREAM), hello=True)
    assert Answer(frames).status == 0
    assert streams(bench)[0].over == 1


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (message(b"x", flag=1), 13),
        (message(b"x", flag=2), 13),
        (message(b"", length=4 * 1024 * 1024 + 1), 8),
        (message(b"ok") + message(b"", length=2**32 - 1), 8),
    ],
)
async def test_rubbish_ends_the_stream(bench: Bench, data: bytes, status: int) -> None:
    frames = bench.say(opened(), frame(DATA, 0, 1, data), request(NOW, b"y", 3), hello=True)
    assert Answer(frames).status == status
    assert Answer(frames, 3).messages == [b"y"]
    assert [stream.over for stream in streams(bench)] == [1]


async def test_a_compressed_message(bench: Bench) -> None:
    data = frame(DATA, 0, 1, message(b"x", flag=1))
    frames = bench.say(opened(1, ("grpc-encoding", "gzip")), data, hello=True)
    assert Answer(frames).status == 12
    assert Answer(frames).fields[-1]["grpc-accept-encoding"] == "identity"


async def test_a_stream_that_ends_within_a_message(bench: Bench) -> None:
    frames = bench.say(opened(), frame(DATA, END_STREAM, 1, message(b"x", length=2)), hello=True)
    assert Answer(frames).status == 13
    assert streams(bench)[0].over == 1


async def test_metadata(bench: Bench) -> None:
    more = [("x-node-id", "edge"), ("x-empty", ""), ("x-two", "a"), ("x-two", "b"),
            ("x-latin", "gr\u00fcn"), ("x-any-bin", "AAE"), ("grpc-timeout", "1H")]  # fmt: skip
    bench.say(opened(1, *more), hello=True)
    assert streams(bench)[0].metadata == {
        "x-node-id": "edge", "x-empty": "", "x-two": "a,b", "x-latin": "gr\u00fcn",
    }  # fmt: skip


async def test_reset_by_the_peer(bench: Bench) -> None:
    bench.say(opened(), said(b"x"), hello=True)
    assert bench.say(frame(RST_STREAM, 0, 1, CANCEL.to_bytes(4))) == []
    assert streams(bench)[0].over == 1
    streams(bench)[0].wire.send(b"too late")
    assert await bench.settle() == []


async def test_reset_before_it_is_opened(bench: Bench) -> None:
    bench.say(opened() + frame(RST_STREAM, 0, 1, CANCEL.to_bytes(4)), hello=True)
    assert streams(bench) == []
    assert bench.server.open_bidi_streams == 0


async def test_a_flood_ends_all_streams_of_its_connection(benches: Benches) -> None:
    bench = benches(Limits(controls_burst=10))
    bench.say(opened(), opened(3), hello=True)
    [*_, bye] = bench.say(frame(PING, 0, 0, b"12345678") * 20)
    assert (bye.kind, bye.code) == (GOAWAY, ENHANCE_YOUR_CALM)
    for stream in streams(bench):
        stream.wire.send(b"nobody hears it")
        assert stream.wire.confirm(lambda: None) is False
    bench.close()
    assert [stream.over for stream in streams(bench)] == [1, 1]
    assert bench.server.open_bidi_streams == 0


# Windows ----------------------------------------------------------------------------------------


async def test_a_large_report_gets_through_the_window(bench: Bench) -> None:
    """And other streams are answered meanwhile."""
    bench.say(opened(), hello=True)
    room, rest, number = 65535, message(b"silent " + b"x" * 409_000), 3
    while rest:
        size = min(16384, room, len(rest))
        assert size, "the window is closed for ever"
        heard = bench.say(frame(DATA, 0, 1, rest[:size]), request(NOW, b"y", number))
        assert Answer(heard, number).messages == [b"y"]
        given = [f.payload for f in heard if f.kind == WINDOW_UPDATE and f.stream == 1]
        room += sum(int.from_bytes(each) for each in given) - size
        rest, number = rest[size:], number + 2
    assert streams(bench)[0].received == 1


async def test_messages_wait_for_the_peers_window(bench: Bench) -> None:
    bench.say(HELLO + settings(window=10))
    frames = bench.say(opened(), said(b"large 95"))
    assert len(Answer(frames).body) == 10
    frames += bench.say(window(1, 80))
    assert len(Answer(frames).body) == 90
    frames += bench.say(window(1, 80))
    assert Answer(frames).messages == [b"x" * 95]


async def test_memory_of_a_large_message_is_given_back(bench: Bench) -> None:
    bench.say(HELLO + settings(window=2**31 - 1) + window(0, 2**30), opened())
    session = bench.protocol._session
    assert session is not None
    data = message(b"large 3000000" + b" " * 400_000)
    for _ in range(3):
        for at in range(0, len(data), 16_000):
            bench.say(frame(DATA, 0, 1, data[at : at + 16_000]))
        assert session.backlog < 1000
    assert streams(bench)[0].received == 3


# Confirmations ----------------------------------------------------------------------------------


async def test_a_confirmation_is_a_ping_behind_the_messages(bench: Bench) -> None:
    frames = bench.say(opened(), said(b"confirm a"), hello=True)
    kinds = [each.kind for each in frames if each.stream == 1 or each.kind == PING]
    assert kinds == [HEADERS, DATA, PING]
    [stream] = streams(bench)
    [ping] = pings(frames)
    bench.say(answer(b"\0" * 8), answer(b"12345678"))  # of other pings
    assert stream.notes == []
    bench.say(answer(ping))
    assert stream.notes == ["delivered a"]
    bench.say(answer(ping))
    assert stream.notes == ["delivered a"]


async def test_a_ping_waits_until_the_window_lets_all_through(bench: Bench) -> None:
    bench.say(HELLO + settings(window=10))
    frames = bench.say(opened(), said(b"large 95"))
    [stream] = streams(bench)
    stream.confirm("a")
    frames += await bench.settle()
    assert pings(frames) == []
    frames += bench.say(window(1, 80))
    assert pings(frames) == []
    frames += bench.say(window(1, 80))
    assert len(pings(frames)) == 1
    assert [each.kind for each in frames if each.kind in (DATA, PING)][-1] == PING
    bench.say(answer(pings(frames)[0]))
    assert stream.notes == ["delivered a"]


async def test_a_ping_waits_for_the_socket(bench: Bench) -> None:
    bench.say(opened(), hello=True)
    [stream] = streams(bench)
    bench.protocol.pause_writing()
    stream.wire.send(b"x")
    stream.confirm("a")
    assert await bench.settle() == []
    bench.protocol.resume_writing()
    frames = await bench.settle()
    assert [each.kind for each in frames] == [HEADERS, DATA, PING]


async def test_one_ping_at_a_time(bench: Bench) -> None:
    """A confirmation is for what was sent before it, so later ones need the next PING."""
    frames = bench.say(opened(), opened(3), said(b"confirm a"), hello=True)
    frames += bench.say(said(b"confirm b"), said(b"confirm c", stream=3))
    [first] = pings(frames)
    frames = bench.say(answer(first))
    [one, other] = streams(bench)
    assert (one.notes, other.notes) == (["delivered a"], [])
    [second] = pings(frames)
    assert second != first
    assert pings(bench.say(answer(second))) == []
    assert (one.notes, other.notes) == (["delivered a", "delivered b"], ["delivered c"])


async def test_a_stream_that_is_over_is_not_confirmed(bench: Bench) -> None:
    frames = bench.say(opened(), opened(3), said(b"confirm a", b"confirm b"), hello=True)
    frames += bench.say(said(b"confirm c", stream=3))
    bench.say(frame(RST_STREAM, 0, 1, CANCEL.to_bytes(4)))
    frames = bench.say(answer(pings(frames)[0]))
    bench.say(answer(pings(frames)[0]))
    [one, other] = streams(bench)
    assert (one.notes, other.notes) == ([], ["delivered c"])
    bench.say(said(b"close 0", stream=3))
    assert other.wire.confirm(lambda: None) is False


async def test_a_peer_that_does_not_answer_pings(benches: Benches) -> None:
    """Whatever else it sends: HTTP/2 demands an answer."""
    bench = benches(Limits(keepalive_timeout=20))
    bench.say(opened(), said(b"confirm a"), hello=True)
    for _ in range(30):
        if bench.transport.state != "open":
            break
        bench.say(said(b"silent"))
        bench.wait(1)
    assert bench.transport.state == "aborted"
    bench.close()
    assert (streams(bench)[0].over, streams(bench)[0].notes) == (1, [])


async def test_what_is_confirmed_may_do_anything(bench: Bench) -> None:
    frames = bench.say(opened(), opened(3), said(b"x"), hello=True)
    one, other = streams(bench)
    one.wire.confirm(lambda: 1 // 0)
    one.wire.confirm(lambda: other.wire.send(b"for you"))
    one.wire.confirm(lambda: bench.protocol.connection_lost(None))
    one.wire.confirm(lambda: one.notes.append("after the end"))
    frames += await bench.settle()
    bench.say(answer(pings(frames)[0]))
    assert one.notes == []
    assert (one.over, other.over) == (1, 1)


# Bounds -----------------------------------------------------------------------------------------


async def test_a_peer_that_does_not_read_is_bounded(benches: Benches) -> None:
    bench = benches(Limits(bidi_queue_bytes=50_000))
    bench.say(HELLO + settings(window=0), opened(), opened(3))
    one, other = streams(bench)
    for _ in range(5):
        one.wire.send(b"x" * 9_000)
    other.wire.send(b"y")
    assert await bench.settle()
    assert one.over == 0
    one.wire.send(b"x" * 9_000)
    frames = await bench.settle()
    assert [(each.stream, each.code) for each in frames if each.kind == RST_STREAM] == [
        (1, ENHANCE_YOUR_CALM)
    ]
    assert (one.over, other.over) == (1, 0)
    frames = bench.say(window(3, 100))
    assert Answer(frames, 3).messages == [b"y"]
    assert bench.protocol._session is not None
    assert bench.protocol._session.backlog == 0


async def test_what_all_streams_of_a_connection_hold_is_bounded(benches: Benches) -> None:
    bench = benches(Limits(held_bytes=100_000))
    bench.say(HELLO + settings(window=0), *[opened(number) for number in range(1, 41, 2)])
    for stream in streams(bench):
        stream.wire.send(b"x" * 9_000)
    await bench.settle()
    assert [stream.over for stream in streams(bench)] == [0] * 11 + [1] * 9


async def test_a_peer_that_reads_slowly_is_not_cut(benches: Benches) -> None:
    bench = benches(Limits(stall_seconds=30))
    bench.say(HELLO + settings(window=0), opened(), said(b"large 1000"))
    for _ in range(10):
        bench.say(window(1, 10))
        bench.wait(20)
        bench.say(frame(PING, 0, 0, b"12345678"))
    assert streams(bench)[0].over == 0
    frames = bench.wait(40)
    assert [each.code for each in frames if each.kind == RST_STREAM] == [ENHANCE_YOUR_CALM]
    assert streams(bench)[0].over == 1


async def test_a_message_that_never_comes(benches: Benches) -> None:
    """Four megabytes are announced: only what comes takes memory, and it has to come."""
    bench = benches(Limits(request_seconds=15))
    bench.say(opened(), opened(3), said(b"x", stream=3), hello=True)
    bench.say(frame(DATA, 0, 1, message(b"only this", length=4_000_000)))
    assert bench.protocol._session is not None
    assert bench.protocol._session.backlog < 100
    frames = []
    for _ in range(20):  # a byte now and then does not help
        frames += bench.say(frame(DATA, 0, 1, b"y")) if not frames else []
        frames += [each for each in bench.wait(1) if each.stream == 1]
        frames = [each for each in frames if each.stream == 1]
    assert Answer(frames).status == 4
    one, other = streams(bench)
    assert (one.over, other.over) == (1, 0)


async def test_quiet_streams_live_for_ever(benches: Benches) -> None:
    bench = benches(Limits(idle_seconds=60, request_seconds=10, stall_seconds=10))
    bench.say(opened(), said(b"x"), hello=True)
    for _ in range(200):
        bench.wait(30)
        bench.say(frame(PING, ACK, 0, b"\0" * 8))  # to our keep-alive
    assert streams(bench)[0].over == 0
    assert Answer(bench.say(said(b"still here"))).messages == [b"still here"]


async def test_pings_every_second_are_answered(bench: Bench) -> None:
    bench.say(opened(), hello=True)
    for number in range(300):
        payload = number.to_bytes(8)
        [pong] = [each for each in bench.say(frame(PING, 0, 0, payload)) if each.kind == PING]
        assert (pong.flags, pong.payload) == (ACK, payload)
        bench.wait(1)
    assert streams(bench)[0].over == 0


async def test_many_tiny_messages_leave_others_their_turn(benches: Benches) -> None:
    """Of 3000 messages in one read, a hundred are received before the loop goes on."""
    bench = benches(Limits(bidi_messages_per_second=1000, bidi_messages_burst=2000))
    bench.say(opened(), opened(3), hello=True)
    data = message(b"silent") * 3000
    bench.say(*[frame(DATA, 0, 1, data[at : at + 16_000]) for at in range(0, len(data), 16_000)])
    one, other = streams(bench)
    assert one.received <= 300  # a hundred for each read
    before = one.received
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert before < one.received <= before + 300
    for _ in range(100):
        await asyncio.sleep(0)
    assert one.received == 2000  # and then the rate counts
    bench.say(said(b"silent", stream=3))
    assert other.received == 0, "it is of the same connection"
    assert Answer(bench.say(request(NOW, b"x", 5)), 5).messages == [b"x"]
    for second in range(1, 4):
        bench.wait(1)
        for _ in range(30):
            await asyncio.sleep(0)
        assert one.received + other.received == min(3001, 2000 + 1000 * second)
    assert (one.over, other.over) == (0, 0)


async def test_a_peer_that_is_too_fast_gets_no_window(benches: Benches) -> None:
    bench = benches(Limits(bidi_messages_per_second=1, bidi_messages_burst=1))
    bench.say(opened(), said(b"silent"), hello=True)
    data = message(b"z" * 1000)
    frames = []
    for _ in range(65_000 // len(data)):
        frames += bench.say(frame(DATA, 0, 1, data))
    assert not [each for each in frames if each.kind == WINDOW_UPDATE and each.stream == 1]
    assert streams(bench)[0].received == 1
    # What it has sent before it went is not lost.
    bench.say(frame(DATA, END_STREAM, 1, b""))
    for _ in range(70):
        bench.wait(1)
        await asyncio.sleep(0)
    assert (streams(bench)[0].received, streams(bench)[0].over) == (1 + 65_000 // len(data), 1)


async def test_ten_thousand_streams(benches: Benches) -> None:
    bench = benches(Limits(bidi_streams=50, resets_burst=20_000))
    bench.say(hello=True)
    refused = 0
    for number in range(1, 20_001, 2):
        frames = bench.say(opened(number))
        refused += any(each.fields.get("grpc-status") == "8" for each in frames)
    assert (len(streams(bench)), refused) == (50, 9_950)
    assert bench.server.open_bidi_streams == 50
    assert bench.server.open_streams == 50
    assert Answer(bench.say(request(NOW, b"x", 20_001)), 20_001).messages == [b"x"]


# Ends -------------------------------------------------------------------------------------------


async def test_a_server_that_leaves_ends_streams(bench: Bench) -> None:
    bench.say(opened(), opened(3), said(b"x"), hello=True)
    drained = asyncio.create_task(bench.server.drain(5))
    frames = await bench.settle()
    assert [each.kind for each in frames if each.kind == GOAWAY] == [GOAWAY]
    assert (Answer(frames).status, Answer(frames, 3).status) == (14, 14)
    assert [stream.over for stream in streams(bench)] == [1, 1]
    # On its way before the peer heard of it.
    assert Answer(bench.say(opened(5)), 5).status == 14
    bench.close()
    assert await drained is True


class Selfish(EchoStream):
    """Does to its own connection what the message says."""

    bench: Bench

    def receive(self, message: bytes) -> None:
        self.received += 1
        if message == b"lost":
            self.bench.protocol.connection_lost(None)
        elif message == b"inner":
            self.bench.protocol.data_received(said(b"more") + opened(7))
        elif message == b"reset":
            self.bench.protocol.data_received(frame(RST_STREAM, 0, 1, CANCEL.to_bytes(4)))
        self.wire.send(message)
        self.confirm("it")

    def closed(self) -> None:
        super().closed()
        self.wire.send(b"nobody hears it")
        self.wire.close(3)
        raise RuntimeError("a closed stream that fails")


@pytest.mark.parametrize("last", [b"lost", b"reset", b"lost at once"])
async def test_a_stream_may_do_anything_to_itself(benches: Benches, last: bytes) -> None:
    """nghttp2 is never at work while a service is."""
    found: list[Selfish] = []

    def selfish(wire: QuotaWire, metadata: Mapping[str, str], peer: str) -> Selfish:
        if last == b"lost at once":
            bench.protocol.connection_lost(None)
        found.append(Selfish(wire, metadata, peer))
        found[-1].bench = bench
        return found[-1]

    bench = benches(methods=Methods(bidi={BIDI: selfish}))
    bench.say(opened(), said(b"1", b"inner", b"2", last, b"unheard"), hello=True)
    await bench.settle()
    assert (found[0].received, found[0].over) == (0 if last == b"lost at once" else 4, 1)
    bench.close()
    assert [stream.over for stream in found] == [1] * len(found)
    assert bench.server.open_bidi_streams == 0
