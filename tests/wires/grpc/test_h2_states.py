"""Stream states (RFC 9113, 5.1), as h2spec asks about them: what may come when, and what may not.

Nothing may come for a stream that the peer has ended or reset. What comes for one that *we* have
reset was on its way, and does no harm.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.wires.grpc.h2.limits import Limits
from wires.grpc.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PRIORITY,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    block,
    frame,
    head,
    message,
    request,
)
from wires.grpc.kit import EACH, NOW, WAIT, Answer, Bench, window

CANCEL = frame(RST_STREAM, 0, 1, b"\0\0\0\x08")
OPEN = frame(HEADERS, END_HEADERS, 1, block(head(EACH)))
REFUSED = frame(HEADERS, END_HEADERS, 1, block(head("/no.Such/Method")))
MORE = {
    "DATA": frame(DATA, 0, 1, message(b"x")),
    "empty DATA": frame(DATA, 0, 1),
    "last DATA": frame(DATA, END_STREAM, 1, message(b"x")),
    "HEADERS": frame(HEADERS, END_HEADERS | END_STREAM, 1, block(head(NOW))),
    "trailers": frame(HEADERS, END_HEADERS | END_STREAM, 1, block([("a", "b")])),
    "RST_STREAM": CANCEL,
    "WINDOW_UPDATE": window(1, 100),
    "CONTINUATION": frame(CONTINUATION, END_HEADERS, 1, block([("a", "b")])),
    "PRIORITY": frame(PRIORITY, 0, 1, b"\0\0\0\0\x10"),
}
STATES = {
    "idle": b"",
    "half-closed (remote)": request(WAIT, b"x"),
    "closed by RST_STREAM": OPEN + CANCEL,
    "closed by RST_STREAM after the end": request(WAIT, b"x") + CANCEL,
    "closed by both ends": request(NOW, b"x"),
}
P, C = PROTOCOL_ERROR, STREAM_CLOSED
#                    what comes: idle, half-closed, and closed in three ways
ANSWERS: dict[str, list[int | None]] = {
    "DATA":              [P, C, C, C, C],
    "empty DATA":        [P, C, C, C, C],
    "last DATA":         [P, C, C, C, C],
    "HEADERS":           [None, C, C, C, C],
    "trailers":          [None, C, C, C, C],
    "RST_STREAM":        [P, None, None, None, None],
    "WINDOW_UPDATE":     [P, None, None, None, None],
    "CONTINUATION":      [P, P, P, P, P],
    "PRIORITY":          [None, None, None, None, None],
}  # fmt: skip
CASES = [
    (state, what, code)
    for what, codes in ANSWERS.items()
    for state, code in zip(STATES, codes, strict=True)
]


def goodbyes(bench: Bench, *data: bytes) -> list[int]:
    return [each.code for each in bench.say(*data) if each.kind == GOAWAY]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("state", "what", "code"), CASES, ids=[f"{what}, {state}" for state, what, _ in CASES]
)
async def test_what_may_come_when(
    bench: Bench, state: str, what: str, code: int | None, at_once: bool
) -> None:
    data = [STATES[state], MORE[what]]
    bench.say(hello=True)
    found = goodbyes(bench, b"".join(data)) if at_once else goodbyes(bench, *data)
    assert found == ([] if code is None else [code])
    if code is None:
        assert Answer(bench.say(request(NOW, b"y", 3)), 3).messages == [b"y"]
    else:
        assert bench.transport.state == "eof"


RESET_BY_US = {
    "no such method": (REFUSED, Limits()),
    "a message that is too large": (OPEN + frame(DATA, 0, 1, message(b"", length=2**30)), Limits()),
    "a wrong trailer": (OPEN + frame(HEADERS, END_HEADERS, 1, block([(":a", "b")])), Limits()),
    "too many streams": (
        frame(HEADERS, END_HEADERS, 3, block(head(EACH)))
        + frame(HEADERS, END_HEADERS, 5, block(head(EACH))),
        Limits(streams=1),
    ),
}


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("what", ["DATA", "last DATA", "trailers", "RST_STREAM", "WINDOW_UPDATE"])
@pytest.mark.parametrize("name", RESET_BY_US)
async def test_what_was_on_its_way_when_we_reset_the_stream_does_no_harm(
    benches: Callable[..., Bench], name: str, what: str, at_once: bool
) -> None:
    """A peer cannot know yet that nobody wants it."""
    begin, limits = RESET_BY_US[name]
    more = MORE[what]
    if name == "too many streams":
        more = more[:5] + (5).to_bytes(4) + more[9:]
    bench = benches(limits)
    heard = bench.say(hello=True)
    heard += bench.say(begin + more) if at_once else bench.say(begin, more)
    assert GOAWAY not in [each.kind for each in heard]
    assert bench.transport.state == "open"
    if name != "too many streams":
        assert Answer(bench.say(request(NOW, b"y", 7)), 7).messages == [b"y"]


async def test_a_request_that_is_refused_while_we_leave_may_have_a_body(bench: Bench) -> None:
    bench.say(request(WAIT, b"x"), hello=True)
    bench.protocol.leave()
    bench.heard()
    assert goodbyes(bench, request(NOW, b"late", 3), frame(DATA, 0, 3, b"more")) == []
    assert bench.echo.calls == 0


# Stream identifiers --------------------------------------------------------------------------


async def test_a_stream_does_not_begin_below_the_last_one(bench: Bench) -> None:
    heard = bench.say(request(NOW, b"x", 5) + request(NOW, b"y", 3), hello=True)
    assert [each.code for each in heard if each.kind == GOAWAY] == [PROTOCOL_ERROR]
    assert bench.echo.calls == 0  # nothing of what came with it is called


@pytest.mark.parametrize("at_once", [True, False])
async def test_nothing_comes_for_a_stream_that_was_passed_over(bench: Bench, at_once: bool) -> None:
    data = [frame(HEADERS, END_HEADERS, 5, block(head(EACH))), frame(DATA, 0, 3, b"x")]
    bench.say(hello=True)
    found = goodbyes(bench, b"".join(data)) if at_once else goodbyes(bench, *data)
    assert found == [PROTOCOL_ERROR]


async def test_a_stream_does_not_begin_twice(bench: Bench) -> None:
    bench.say(request(NOW, b"x", 5), hello=True)
    assert goodbyes(bench, request(NOW, b"y", 5)) == [STREAM_CLOSED]


@pytest.mark.parametrize("step", [2, 4, 100, 2046, 2048, 2050, 1_000_000])
async def test_numbers_may_be_passed_over(bench: Bench, step: int) -> None:
    bench.say(hello=True)
    for stream in range(1, 1 + 20 * step, step):
        assert Answer(bench.say(request(NOW, b"x", stream)), stream).messages == [b"x"]
    if step > 2:
        assert goodbyes(bench, request(NOW, b"x", stream - 2)) == [PROTOCOL_ERROR]
    else:
        assert goodbyes(bench, request(NOW, b"x", stream - 2)) == [STREAM_CLOSED]


async def test_an_old_stream_that_is_open_goes_on(bench: Bench) -> None:
    """Only so many numbers are remembered: what lies behind them is not an error."""
    bench.say(OPEN, hello=True)
    for stream in range(3, 6_003, 2):
        assert Answer(bench.say(request(NOW, b"x", stream)), stream).messages == [b"x"]
    assert Answer(bench.say(MORE["DATA"])).messages == [b"x"]
    assert Answer(bench.say(MORE["last DATA"])).status == 0
    assert goodbyes(bench, MORE["DATA"], MORE["trailers"]) == []
    assert goodbyes(bench, frame(DATA, 0, 5_001, b"x")) == [STREAM_CLOSED]


# Concurrency ---------------------------------------------------------------------------------


@pytest.mark.parametrize("knows", [False, True])
async def test_more_streams_than_we_said_are_refused(
    benches: Callable[..., Bench], knows: bool
) -> None:
    """One that cannot know of the limit yet may try again; one that does has broken its word."""
    bench = benches(Limits(streams=2))
    bench.say(hello=True)
    if knows:
        bench.say(frame(SETTINGS, ACK))
    heard = bench.say(*[frame(HEADERS, END_HEADERS, n, block(head(EACH))) for n in (1, 3, 5)])
    if knows:
        assert [each.code for each in heard if each.kind == GOAWAY] == [PROTOCOL_ERROR]
    else:
        assert Answer(heard, 5).resets == [REFUSED_STREAM]
        assert Answer(bench.say(frame(DATA, END_STREAM, 1, message(b"x")))).messages == [b"x"]


async def test_a_stream_that_was_answered_makes_room(benches: Callable[..., Bench]) -> None:
    """Also if the peer has not ended it: it is told that it need not."""
    bench = benches(Limits(streams=2))
    bench.say(frame(SETTINGS, ACK), hello=True)
    for stream in range(1, 41, 2):
        fields = head("/no.Such/Method")
        heard = bench.say(frame(HEADERS, END_HEADERS, stream, block(fields)))
        assert Answer(heard, stream).resets == [0]
    assert bench.server.open_streams == 0
