"""Requests as a client may send them, right and wrong, frame by frame."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from wires.grpc.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    HELLO,
    PADDED,
    block,
    frame,
    head,
    message,
    request,
)
from wires.grpc.kit import EACH, NOW, WATCH, Answer, Bench

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
    many = block([(f"x{i}", "") for i in range(150)])
    answer = Answer(bench.say(frame(HEADERS, END_HEADERS | END_STREAM, 1, many)))
    assert answer.status == 8
