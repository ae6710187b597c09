"""Frames that break the protocol: each ends the connection, or a stream, with the right error."""

from __future__ import annotations

import pytest

from wires.grpc.frames import (
    ACK,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    HELLO,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    block,
    frame,
    head,
    message,
    request,
    settings,
)
from wires.grpc.kit import EACH, NOW, WAIT, Answer, Bench, window

OPEN = frame(HEADERS, END_HEADERS, 1, block(head(EACH)))
EIGHT = b"\0" * 8
CANCEL = b"\0\0\0\x08"


def setting(number: int, value: int) -> bytes:
    return frame(SETTINGS, payload=number.to_bytes(2) + value.to_bytes(4))


ENDS_THE_CONNECTION = [
    ("DATA on no stream", frame(DATA, 0, 0, b"x"), PROTOCOL_ERROR),
    ("DATA on a stream that is not open", frame(DATA, 0, 1, b"x"), PROTOCOL_ERROR),
    ("DATA after the end", OPEN + frame(DATA, END_STREAM, 1) + frame(DATA, 0, 1, b"x"),
     STREAM_CLOSED),
    ("padding longer than the frame", OPEN + frame(DATA, PADDED, 1, b"\x05abc"), PROTOCOL_ERROR),
    ("HEADERS on no stream", frame(HEADERS, END_HEADERS, 0, block(head(NOW))), PROTOCOL_ERROR),
    ("HEADERS on a server's stream", frame(HEADERS, END_HEADERS, 2, block(head(NOW))),
     PROTOCOL_ERROR),
    ("fields that cannot be unpacked", frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
     COMPRESSION_ERROR),
    ("an index that does not exist", frame(HEADERS, END_HEADERS, 1, b"\xff\x00"),
     COMPRESSION_ERROR),
    ("DATA within a header block", frame(HEADERS, 0, 1, b"") + frame(DATA, 0, 1, b"x"),
     PROTOCOL_ERROR),
    ("PING within a header block", frame(HEADERS, 0, 1, b"") + frame(PING, 0, 0, EIGHT),
     PROTOCOL_ERROR),
    ("CONTINUATION of another stream", frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 4, 3),
     PROTOCOL_ERROR),
    ("CONTINUATION of nothing", frame(CONTINUATION, END_HEADERS, 1, b""), PROTOCOL_ERROR),
    ("a short PRIORITY", frame(PRIORITY, 0, 1, b"\0\0"), FRAME_SIZE_ERROR),
    ("a short RST_STREAM", OPEN + frame(RST_STREAM, 0, 1, b"\0"), FRAME_SIZE_ERROR),
    ("RST_STREAM on no stream", frame(RST_STREAM, 0, 0, CANCEL), PROTOCOL_ERROR),
    ("RST_STREAM of what is not open", frame(RST_STREAM, 0, 1, CANCEL), PROTOCOL_ERROR),
    ("SETTINGS on a stream", frame(SETTINGS, 0, 1), PROTOCOL_ERROR),
    ("SETTINGS of a wrong size", frame(SETTINGS, 0, 0, b"\0" * 5), FRAME_SIZE_ERROR),
    ("an ACK that says something", frame(SETTINGS, ACK, 0, b"\0" * 6), FRAME_SIZE_ERROR),
    ("ENABLE_PUSH of 2", setting(2, 2), PROTOCOL_ERROR),
    ("a window of 2 GB", setting(4, 2**31), FLOW_CONTROL_ERROR),
    ("a frame size of 1", setting(5, 1), PROTOCOL_ERROR),
    ("PUSH_PROMISE", frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2"), PROTOCOL_ERROR),
    ("a short PING", frame(PING, 0, 0, b"\0" * 7), FRAME_SIZE_ERROR),
    ("PING on a stream", frame(PING, 0, 1, EIGHT), PROTOCOL_ERROR),
    ("a short GOAWAY", frame(GOAWAY, 0, 0, b"\0" * 7), FRAME_SIZE_ERROR),
    ("GOAWAY on a stream", frame(GOAWAY, 0, 1, EIGHT), PROTOCOL_ERROR),
    ("a short WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, b"\0"), FRAME_SIZE_ERROR),
    ("a window by nothing", window(0, 0), PROTOCOL_ERROR),
    ("a window that is too wide", window(0, 2**31 - 1) * 2, FLOW_CONTROL_ERROR),
    ("a frame that is too large", frame(DATA, 0, 1, b"\0" * 16385), FRAME_SIZE_ERROR),
]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "code"),
    [row[1:] for row in ENDS_THE_CONNECTION],
    ids=[row[0] for row in ENDS_THE_CONNECTION],
)
async def test_what_ends_the_connection(bench: Bench, data: bytes, code: int) -> None:
    heard = bench.say(data, hello=True)
    assert [each.code for each in heard if each.kind == GOAWAY] == [code]
    assert bench.transport.state == "eof"  # it can still read why
    assert bench.say(request(NOW, b"x", 99)) == []
    assert bench.echo.calls == 0
    bench.wait(3)
    assert bench.transport.state == "aborted"


ENDS_A_STREAM = [
    ("no path", frame(HEADERS, 5, 1, block(head(NOW, drop=[":path"]))), PROTOCOL_ERROR),
    ("no method", frame(HEADERS, 5, 1, block(head(NOW, drop=[":method"]))), PROTOCOL_ERROR),
    ("two paths", frame(HEADERS, 5, 1, block([(":path", "/"), *head(NOW)])), PROTOCOL_ERROR),
    ("an empty path", frame(HEADERS, 5, 1, block(head(""))), PROTOCOL_ERROR),
    ("a pseudo field of answers", frame(HEADERS, 5, 1, block([(":status", "1"), *head(NOW)])),
     PROTOCOL_ERROR),
    ("a pseudo field that comes late", frame(HEADERS, 5, 1, block([("a", "b"), *head(NOW)])),
     PROTOCOL_ERROR),
    ("upper case", frame(HEADERS, 5, 1, block(head(NOW, ("X-Y", "z")))), PROTOCOL_ERROR),
    ("connection", frame(HEADERS, 5, 1, block(head(NOW, ("connection", "close")))),
     PROTOCOL_ERROR),
    ("te", frame(HEADERS, 5, 1, block(head(NOW, te="gzip"))), PROTOCOL_ERROR),
    ("content-length is wrong", frame(HEADERS, 4, 1, block(head(NOW, ("content-length", "3"))))
     + frame(DATA, END_STREAM, 1, message(b"hi")), PROTOCOL_ERROR),
    ("trailers with a pseudo field", OPEN + frame(HEADERS, 5, 1, block([(":path", "/")])),
     PROTOCOL_ERROR),
    ("trailers that do not end it", OPEN + frame(HEADERS, 4, 1, block([("a", "b")])),
     PROTOCOL_ERROR),
    ("a window by nothing", OPEN + window(1, 0), PROTOCOL_ERROR),
    ("a window that is too wide", OPEN + window(1, 2**31 - 1), FLOW_CONTROL_ERROR),
    ("more than our window", OPEN + frame(DATA, 0, 1, message(b"", length=10**6))
     + frame(DATA, 0, 1, b"\0" * 16384) * 4, FLOW_CONTROL_ERROR),
]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "code"), [row[1:] for row in ENDS_A_STREAM], ids=[row[0] for row in ENDS_A_STREAM]
)
async def test_what_ends_a_stream(bench: Bench, data: bytes, code: int) -> None:
    heard = bench.say(data, hello=True)
    if GOAWAY in [each.kind for each in heard]:  # the RFC lets a server choose
        assert [each.code for each in heard if each.kind == GOAWAY] == [code]
        return
    assert Answer(heard).resets == [code]
    assert bench.echo.calls == 0
    assert Answer(bench.say(request(NOW, b"x", 3)), 3).messages == [b"x"]


HARMLESS = [
    ("a frame that nobody knows", frame(0xBE, 0xFF, 0, b"anything")),
    ("a setting that nobody knows", setting(0xF00, 1)),
    ("PRIORITY of what is not open", frame(PRIORITY, 0, 9, b"\0\0\0\0\x10")),
    ("PING", frame(PING, 0, 0, b"12345678")),
    ("flags that mean nothing", frame(PING, 0xF0, 0, EIGHT)),
    ("RST_STREAM of what was answered", request(NOW, b"") + frame(RST_STREAM, 0, 1, CANCEL)),
    ("WINDOW_UPDATE of what was answered", request(NOW, b"") + window(1, 5)),
    ("an ALTSVC frame", frame(0xA, 0, 0, b"\0\0")),
    ("all settings", settings(streams=0, window=2**31 - 1, frame_size=2**24 - 1, header_bytes=0)),
]


@pytest.mark.parametrize("data", [row[1] for row in HARMLESS], ids=[row[0] for row in HARMLESS])
async def test_what_does_no_harm(bench: Bench, data: bytes) -> None:
    bench.say(data, hello=True)
    assert Answer(bench.say(request(NOW, b"x", 3)), 3).messages == [b"x"]


async def test_a_ping_is_answered(bench: Bench) -> None:
    heard = bench.say(frame(PING, 0, 0, b"12345678"), hello=True)
    assert [(f.flags, f.payload) for f in heard if f.kind == PING] == [(ACK, b"12345678")]


async def test_a_client_that_says_goodbye_gets_its_answers(bench: Bench) -> None:
    bench.say(request(WAIT, b"mine"), frame(GOAWAY, 0, 0, EIGHT), hello=True)
    await bench.settle()
    assert bench.transport.state == "open"
    bench.echo.go_on.set()
    assert Answer(await bench.settle()).messages == [b"mine"]
    assert bench.transport.state == "eof"


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,  # the hello of TLS
        b"\0" * 100,
        b"PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n",
        b"garbage",
    ],
)
async def test_what_is_not_http_2(bench: Bench, data: bytes) -> None:
    [bye] = bench.say(data)
    assert (bye.kind, bye.code, bye.text) == (GOAWAY, PROTOCOL_ERROR, "this is not HTTP/2")
    assert bench.transport.state == "eof"


async def test_something_else_than_settings_first(bench: Bench) -> None:
    heard = bench.say(PREFACE + request(NOW, b"x"))
    assert heard[-1].kind == GOAWAY
    assert bench.echo.calls == 0


async def test_http_1_is_told_so(bench: Bench) -> None:
    bench.protocol.data_received(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
    head, _, body = bench.transport.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-length: %d" % len(body) in head
    assert b"gRPC" in body
    assert bench.transport.state == "eof"
    bench.protocol.data_received(b"more of it")
    bench.protocol.eof_received()


async def test_nothing_is_said_before_the_client_speaks(bench: Bench) -> None:
    assert bench.heard() == []
    assert bench.say(HELLO)[0].kind == SETTINGS
