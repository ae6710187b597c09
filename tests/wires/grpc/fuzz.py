"""Throws broken requests at the nghttp2 wire: it must bear them all, and forget them all.

    python tests/wires/grpc/fuzz.py --count 100000     or --minutes 10
    python tests/wires/grpc/fuzz.py --only 4711        once more what was found before

An input is a real conversation (as grpcio has it, and made by hand) in which frames or bytes
were dropped, doubled, moved, spliced or changed; it arrives in pieces of any size, while the
transport is sometimes full and time passes. Whatever it is, nothing may be raised, what comes
back must be frames, a connection that is done holds nothing, and the next client is served.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import logging
import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest does; this is run alone, too
import grpc.aio

from penstock.testing import FakeClock
from penstock.wires.grpc.h2.limits import Limits
from penstock.wires.grpc.h2.protocol import H2Protocol
from penstock.wires.grpc.h2.server import H2Server
from wires.grpc.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    HELLO,
    PADDED,
    PREFACE,
    Reader,
    block,
    frame,
    head,
    message,
    request,
    settings,
)
from wires.grpc.kit import (
    BIDI,
    EACH,
    LARGE,
    LATER,
    NOW,
    RAISE,
    STATUS,
    WAIT,
    WATCH,
    Echo,
    Recorder,
    window,
)
from wires.grpc.quota_echo import EchoStream

Talk = list[bytes]  # frames; the first is the preface
EIGHT = b"12345678"
# So that inputs come to the bounds, and beyond.
NARROW = Limits(
    streams=10, header_count=20, message_bytes=50_000, stream_bytes=10_000, held_bytes=100_000,
    queued_bytes=1000, resets_burst=5, controls_burst=10, continuations=2, bidi_streams=3,
    bidi_message_bytes=60_000, bidi_queue_bytes=30_000, bidi_messages_burst=150,
)  # fmt: skip


class Found(Exception):
    """Something that the wire does not bear."""


def by_hand() -> list[Talk]:
    """Conversations that touch every corner of the wire."""
    fields = block(head(NOW, ("grpc-timeout", "100m"), ("user-agent", "x" * 50)))
    opened = frame(HEADERS, END_HEADERS, 1, block(head(EACH)))
    bidi = [
        frame(HEADERS, END_HEADERS, n, block(head(BIDI, ("x-node-id", "edge"), ("x-hello", "hi"))))
        for n in (1, 3, 5, 7)
    ]
    answer = frame(6, 1, 0, b"pens\0\0\0\1")  # to the first PING of a confirmation
    talks = [
        [request(path, text, 1 + 2 * i)]
        for i, (path, text) in enumerate(
            [(NOW, b"hello"), (LATER, b"x"), (LARGE, b"90000"), (RAISE, b""), (STATUS, b"3 no"),
             (WAIT, b""), (WATCH, b"5 20000"), (WATCH, b"3 10 wait"), ("/no.Such/Method", b"x")]
        )
    ]  # fmt: skip
    talks += [
        [opened, *[frame(DATA, 0, 1, message(text)) for text in (b"1", b"later", b"large 70000")],
         frame(DATA, END_STREAM, 1, b"")],
        [frame(HEADERS, 0, 1, fields[:30]), frame(9, 0, 1, fields[30:60]),
         frame(9, END_HEADERS, 1, fields[60:]), frame(DATA, END_STREAM, 1, message(b"x"))],
        [settings(window=0), request(LARGE, b"5000"), window(1, 100), window(1, 10_000),
         window(0, 100_000), settings(window=100_000)],
        [opened, frame(DATA, PADDED, 1, b"\3" + message(b"abc") + b"\0\0\0"),
         frame(HEADERS, END_HEADERS | END_STREAM, 1, block([("trailer", "x")]))],
        [frame(6, 0, 0, EIGHT), settings(streams=5, frame_size=20_000), frame(4, 1),
         frame(2, 0, 1, b"\0\0\0\0\1"), frame(0xEE, 7, 9, b"what?"), request(NOW, b"x")],
        [request(WAIT, b"", 1), frame(3, 0, 1, b"\0\0\0\x08"), request(LATER, b"x", 3),
         frame(3, 0, 3, b"\0\0\0\x08"), request(NOW, b"", 5), frame(7, 0, 0, EIGHT)],
        [request(LATER, b"", n) + frame(3, 0, n, EIGHT[:4]) for n in range(1, 13, 2)],
        [bidi[0], *[frame(DATA, 0, 1, message(text)) for text in
                    (b"1", b"confirm a", b"large 20000", b"silent", b"many 50", b"close 14")]],
        [bidi[0], frame(DATA, 0, 1, message(b"confirm a")), answer,
         frame(DATA, 0, 1, message(b"confirm b") + message(b"malformed"))],
        [settings(window=10), *bidi, frame(DATA, 0, 3, message(b"large 9000")),
         frame(DATA, 0, 1, message(b"confirm c")), window(3, 5000), window(1, 1000), answer,
         frame(3, 0, 3, EIGHT[:4]), frame(DATA, END_STREAM, 1, b"")],
        [bidi[0], frame(DATA, 0, 1, message(b"silent") * 300), frame(DATA, END_STREAM, 1, b"")],
        [bidi[0], bidi[1], frame(DATA, 0, 1, message(b"z" * 16_000, length=50_000)),
         frame(DATA, 0, 1, b"z" * 16_000), frame(DATA, 0, 3, message(b"raise")),
         frame(DATA, 0, 1, b"z" * 18_000 + message(b"status 9"))],
        [frame(HEADERS, END_HEADERS | END_STREAM, 1, block(head(BIDI))),
         frame(HEADERS, END_HEADERS, 3, block(head(BIDI, ("x-close", "7"))))],
        [frame(HEADERS, END_HEADERS, 1, block(head(NOW, ("x", "y" * 9000)))),
         frame(DATA, 0, 1, message(b"z" * 16000, length=60_000))],
    ]  # fmt: skip
    return [[PREFACE, settings(), *talk] for talk in talks]


async def by_grpcio() -> list[Talk]:
    """What a real client sends, read off the wire."""
    heard: list[bytes] = []

    class Tap(H2Protocol):
        def data_received(self, data: bytes) -> None:
            heard.append(data)
            super().data_received(data)

    server = H2Server(Echo().methods)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: Tap(server), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for path in (NOW, LATER):
            await channel.unary_unary(path)(b"hello", timeout=5, metadata=[("a-bin", b"\0\1")])
        async for _ in channel.stream_stream(EACH)(iter([b"1", b"later"])):
            pass
        async for _ in channel.unary_stream(WATCH)(b"3 10"):
            pass
        async for _ in channel.stream_stream(BIDI)(iter([b"1", b"confirm a", b"large 9000"])):
            pass
    listener.close()
    await server.drain(1)
    return [split(b"".join(heard))]


def split(data: bytes) -> Talk:
    talk, at = [data[: len(PREFACE)]], len(PREFACE)
    while at < len(data):
        end = at + 9 + int.from_bytes(data[at : at + 3])
        talk.append(data[at:end])
        at = end
    return talk


def change_frames(talk: Talk, talks: list[Talk], dice: random.Random) -> Talk:
    """Something that only who knows frames would do."""
    at = dice.randrange(1, len(talk))
    kind, one = dice.choice([*range(9), 8, 8, 8]), bytearray(talk[at])
    if kind == 0:
        return talk[:at] + talk[at + 1 :]
    if kind == 1:
        return talk[:at] + [talk[at]] * dice.choice([2, 3, 50]) + talk[at + 1 :]
    if kind == 2:
        other = dice.choice(talks)
        return talk[:at] + other[dice.randrange(1, len(other)) :]
    if kind == 3:
        to = dice.randrange(1, len(talk))
        return [*talk[:at], talk[to], *talk[at + 1 : to], talk[at], *talk[max(to, at) + 1 :]]
    if len(one) < 9:
        return talk
    if kind == 4:
        one[3] = dice.randrange(12)
    elif kind == 5:
        one[4] ^= 1 << dice.randrange(8)
    elif kind == 6:
        one[5:9] = dice.choice([0, 1, 2, 3, 5, 2**31 - 1, 2**32 - 1]).to_bytes(4)
    elif kind == 7:
        one[:3] = dice.choice([0, 1, len(one), 16384, 16385, 2**24 - 1]).to_bytes(3)
    elif len(one) > 9:
        one[dice.randrange(9, len(one))] = dice.randrange(256)
    return [*talk[:at], bytes(one), *talk[at + 1 :]]


def change_bytes(data: bytes, dice: random.Random) -> bytes:
    """Something that the line, or a monkey, would do."""
    if not data:
        return data
    at = dice.randrange(len(data))
    kind = dice.randrange(5)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + dice.randbytes(dice.randrange(1, 20)) + data[at:]
    if kind == 2:
        return data[:at] + data[at + dice.randrange(1, 20) :]
    if kind == 3:
        return data[:at]
    return data[:at] + dice.randbytes(dice.randrange(1, 60)) + data[at + 30 :]


def make(number: int, talks: list[Talk]) -> tuple[bytes, random.Random]:
    """Input ``number``, always the same, and dice for how it arrives."""
    dice = random.Random(number)
    talk = dice.choice(talks)
    for _ in range(dice.choice([0, 1, 1, 1, 2, 4])):
        if len(talk) > 1:
            talk = change_frames(talk, talks, dice)
    start = dice.choice([0, *[len(HELLO)] * 20])  # a broken hello is soon seen
    data = b"".join(talk)
    data, rest = data[:start], data[start:]
    for _ in range(dice.choice([0, 0, 0, 1, 1, 3])):
        rest = change_bytes(rest, dice)
    return data + rest, dice


class Fuzzer:
    """One server for all inputs: what one leaves behind, another would stumble over."""

    def __init__(self, talks: list[Talk]) -> None:
        self._talks = talks
        self._clock = FakeClock()
        self._echo = Echo()
        self._server = H2Server(self._echo.methods, NARROW, clock=self._clock)

    async def throw(self, number: int) -> None:
        data, dice = make(number, self._talks)
        protocol, transport = self._server.factory(), Recorder()
        protocol.connection_made(transport)
        careful = dice.random() < 0.1
        streams = self._echo.quota.streams
        at, full = 0, False
        try:
            while at < len(data) and not transport.is_closing():
                size = dice.choice([1, 7, 100, 1000, len(data)])
                protocol.data_received(data[at : at + size])
                at += size
                what = dice.randrange(12)
                if what == 0:
                    await asyncio.sleep(0)
                elif what == 1:
                    self._clock.advance(dice.choice([0.1, 1, 20]))
                    protocol.look()
                elif what == 2 and not full and transport.state == "open":
                    full = True
                    protocol.pause_writing()
                elif what == 3 and full:
                    full = False
                    protocol.resume_writing()
                elif what == 4 and streams:
                    self._push(dice.choice(streams), dice)
            await asyncio.sleep(0)
            self._check(protocol, transport, careful and not data.startswith(b"GET"))
        finally:
            protocol.connection_lost(None)
        if self._server.connections or self._server.open_streams:
            raise Found("a connection was not forgotten")
        ends = {stream.over for stream in streams}
        if self._server.open_bidi_streams or ends - {1}:
            raise Found(f"streams heard {ends} times that they are over")
        streams.clear()

    @staticmethod
    def _push(stream: EchoStream, dice: random.Random) -> None:
        """What a service does without being asked, also when it is too late."""
        what = dice.randrange(6)
        if what == 0:
            stream.wire.close(dice.randrange(17), "enough")
        elif what == 1:
            stream.confirm("it")
        else:
            stream.wire.send(b"x" * dice.choice([0, 10, 5000, 20_000]))

    def _check(self, protocol: H2Protocol, transport: Recorder, careful: bool) -> None:
        session = protocol._session
        if session is not None and session.open == 0 and transport.state == "open":
            while session.pending():
                pass
            if session.backlog and session.why is None:
                raise Found(f"{session.backlog} bytes are held for no stream")
        if careful and len(Reader().read(transport.written)) == 0 and transport.written:
            raise Found("what came back is not HTTP/2")

    async def serve(self) -> None:
        """A client that does nothing wrong is answered as ever."""
        protocol, transport = self._server.factory(), Recorder()
        protocol.connection_made(transport)
        protocol.data_received(HELLO + request(NOW, b"hello") + request(LATER, b"later", 3))
        for _ in range(10):
            await asyncio.sleep(0)
        frames = Reader().read(transport.written)
        protocol.connection_lost(None)
        got = [each.payload[5:] for each in frames if each.kind == DATA]
        if got != [b"hello", b"later"]:
            raise Found(f"a good client got {got}")


async def run(
    count: int | None, until: float, start: int = 0, tell: Callable[[int], None] | None = None
) -> int:
    """Inputs from ``start`` on; how many it were. `Found` names the input."""
    logging.getLogger("penstock.server").setLevel(logging.CRITICAL + 1)
    try:
        fuzzer = Fuzzer(by_hand() + await by_grpcio())
        number, memory = start, 0
        while (count is None or number < start + count) and time.monotonic() < until:
            try:
                await fuzzer.throw(number)
                if number % 100 == 0:
                    await fuzzer.serve()
            except Exception as error:
                raise Found(f"input {number}: {error!r}") from error
            number += 1
            if tell is not None and number % 1000 == 0:
                faulthandler.dump_traceback_later(60, exit=True)  # an input that never ends
            if number - start == 5000:
                memory = rss()
            if tell is not None and number % 10_000 == 0:
                tell(number)
        if memory and rss() - memory > 30:
            raise Found(f"memory grew from {memory} to {rss()} MB")
        return number - start
    finally:
        logging.getLogger("penstock.server").setLevel(logging.NOTSET)


def rss() -> int:
    """MB that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description="Throws broken requests at the nghttp2 wire.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--start", type=int, default=0, help="the number of the first input")
    parser.add_argument("--only", type=int, help="the number of one input")
    args = parser.parse_args()
    faulthandler.enable()
    start, count = (args.start, args.count) if args.only is None else (args.only, 1)
    until = time.monotonic() + (args.minutes * 60 if args.count is None else 1e9)
    done = asyncio.run(run(count, until, start, lambda n: print(n, f"{rss()} MB", flush=True)))
    print(f"{done} inputs, nothing found")


if __name__ == "__main__":
    main()
