"""What is counted in the end: given back by how the call ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from integrations.grpc.kit import AIO, AIO_WRITER, SYNC, Bench, eventually, finish
from penstock.integrations.grpc import Status

OK, UNKNOWN, CANCELLED = (
    grpc.StatusCode.OK,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.CANCELLED,
)
DENIED = grpc.StatusCode.UNAUTHENTICATED
REPLY = ("reply", "hello")
# Not AIO_THREADS: when a client goes away, grpc.aio leaves the generator of a plain function
# where it stands, and its thread with it.
WOKEN = (SYNC, AIO, AIO_WRITER)
KEY = "ip:127.0.0.1/32"


class Watch:
    """A ``count_when`` that remembers what it was asked."""

    def __init__(self, counts: Callable[[Status], bool] = lambda status: False) -> None:
        self.seen: list[Status] = []
        self._counts = counts

    def __call__(self, status: Status) -> bool:
        self.seen.append(status)
        return self._counts(status)


def left(bench: Bench, limit: str = "9/minute") -> int:
    return bench.limiter(limit).peek(KEY).remaining


ENDINGS = [
    pytest.param([REPLY], OK, None, id="it answers"),
    pytest.param([("abort", DENIED, "who?")], DENIED, None, id="it aborts"),
    pytest.param([("set_code", DENIED), REPLY], DENIED, None, id="it sets a code"),
    pytest.param([("raise", LookupError("oh"))], UNKNOWN, LookupError, id="it raises"),
    pytest.param(
        [("set_code", DENIED), ("raise", LookupError("oh"))],
        DENIED,
        LookupError,
        id="it sets a code and raises",
    ),
]


@pytest.mark.parametrize(("steps", "code", "error"), ENDINGS)
def test_how_a_call_ended(
    bench: Bench, kind: str, steps: list[Any], code: Any, error: type[Exception] | None
) -> None:
    watch = Watch()
    client = bench.limited(bench.limiter("9/minute"), count_when=watch)
    bench.script.steps = steps
    assert client.call(kind).code is code, "the client and count_when hear the same"
    eventually(lambda: watch.seen)
    (status,) = watch.seen
    assert status.code is code
    assert type(status.error) is (error or type(None))
    assert status.failed == (code is UNKNOWN)
    assert status.call.method == f"/test.Echo/{kind}"
    eventually(lambda: left(bench) == 9)


# Not AIO_THREADS: there, gRPC may still be sending the response that came before.
@pytest.mark.parametrize("bench", WOKEN, indirect=True)
def test_a_stream_that_aborts_in_its_middle(bench: Bench) -> None:
    watch = Watch()
    client = bench.limited(bench.limiter("9/minute"), count_when=watch)
    bench.script.steps = [REPLY, REPLY, ("abort", DENIED, "who?")]
    answer = client.call("stream_stream")
    assert (answer.code, answer.replies) == (DENIED, ["hello", "hello"])
    assert answer.trailing["ratelimit"] == '"default";r=8;t=7'
    eventually(lambda: left(bench) == 9)
    assert [status.code for status in watch.seen] == [DENIED]


@pytest.mark.parametrize("kind", ["unary_unary", "stream_stream"])
@pytest.mark.parametrize(
    ("steps", "counted"),
    [
        ([REPLY], False),
        ([("abort", DENIED, "who?")], True),
        ([("set_code", DENIED), REPLY], True),
        ([("abort", grpc.StatusCode.NOT_FOUND, "?")], False),
        ([("raise", LookupError("oh"))], False),
    ],
)
def test_only_failed_log_ins_are_counted(
    bench: Bench, kind: str, steps: list[Any], counted: bool
) -> None:
    client = bench.limited(
        bench.limiter("9/minute"), count_when=lambda status: status.code == DENIED
    )
    bench.script.steps = steps
    client.call(kind)
    eventually(lambda: bench.script.left.is_set() and left(bench) == 9 - counted)


def test_who_is_refused_takes_and_gives_nothing(bench: Bench, kind: str) -> None:
    watch = Watch(lambda status: True)
    client = bench.limited(bench.limiter("1/minute"), count_when=watch)
    assert client.call(kind).passed
    eventually(lambda: watch.seen)
    assert not client.call(kind).passed
    assert len(watch.seen) == 1
    assert left(bench, "1/minute") == 0


def test_a_whole_cost_is_given_back(bench: Bench) -> None:
    client = bench.limited(bench.limiter("9/minute"), cost=4, count_when=lambda status: False)
    assert client.call().trailing["ratelimit"] == '"default";r=5;t=27'
    eventually(lambda: left(bench) == 9)


def test_exactly_what_was_taken_is_given_back(bench: Bench) -> None:
    """In a log, the entry of this call, not the newest."""
    limit = "3/minute sliding_log"
    client = bench.limited(bench.limiter(limit), count_when=lambda status: False)
    bench.script.steps = [("pause",), REPLY]
    call = client.start()
    assert bench.script.paused.wait(10)
    bench.clock.advance(30)
    bench.limiter(limit).hit(KEY)
    bench.script.go_on.set()
    assert finish("unary_unary", call).passed
    eventually(lambda: left(bench, limit) == 2)
    bench.clock.advance(31)  # the entry of the call would be gone, the other is not
    assert left(bench, limit) == 2


def test_several_limits_are_all_given_back(bench: Bench) -> None:
    limits = ["3/second", "9/minute"]
    client = bench.limited(bench.limiter(), limit=limits, count_when=lambda status: False)
    assert client.call().passed
    eventually(lambda: [left(bench, limit) for limit in limits] == [3, 9])


def test_a_stream_is_counted_until_its_end(bench: Bench) -> None:
    client = bench.limited(bench.limiter("9/minute"), count_when=lambda status: False)
    bench.script.steps = [("reply", "a"), ("pause",), ("reply", "b")]
    call = client.start("unary_stream")
    assert next(call) == b"a"
    assert bench.script.paused.wait(10)
    assert left(bench) == 8
    bench.script.go_on.set()
    assert finish("unary_stream", call).replies == ["b"]
    eventually(lambda: left(bench) == 9)


@pytest.mark.parametrize("bench", WOKEN, indirect=True)
def test_a_client_that_cancels_in_mid_stream(bench: Bench) -> None:
    watch = Watch()
    client = bench.limited(bench.limiter("9/minute"), count_when=watch)
    many = [("reply", "more")] * 50
    bench.script.steps = [("reply", "a"), ("pause",), *many]
    call = client.start("stream_stream", ("x", "y"))
    assert next(call) == b"a"
    assert bench.script.paused.wait(10)
    assert left(bench) == 8
    call.cancel()
    assert finish("stream_stream", call).code is CANCELLED
    if bench.stack == SYNC:  # nothing wakes a thread that sleeps
        bench.script.go_on.set()
    assert bench.script.left.wait(10), "the handler was not closed"
    eventually(lambda: watch.seen)
    eventually(lambda: left(bench) == 9)
    assert [status.code for status in watch.seen] == [CANCELLED]
    assert watch.seen[0].error is None


@pytest.mark.parametrize("bench", WOKEN, indirect=True)
def test_a_client_that_cancels_while_it_is_sent_much(bench: Bench) -> None:
    """The handler is held back by flow control, not by anything of its own."""
    closed: list[bool] = []
    watch = Watch(lambda status: bool(closed.append(bench.script.left.is_set())))
    client = bench.limited(bench.limiter("9/minute"), count_when=watch)
    bench.script.steps = [("reply", "x" * 100_000)] * 1000
    call = client.start("unary_stream")
    next(call)
    call.cancel()
    assert bench.script.left.wait(10)
    eventually(lambda: left(bench) == 9)
    assert [status.code for status in watch.seen] == [CANCELLED]
    assert closed == [True], "count_when was asked before the handler had ended"


@pytest.mark.parametrize("bench", [SYNC, AIO], indirect=True)
def test_a_client_that_cancels_a_single_answer(bench: Bench) -> None:
    watch = Watch()
    client = bench.limited(bench.limiter("9/minute"), count_when=watch)
    bench.script.steps = [("pause",), REPLY]
    call = client.start()
    assert bench.script.paused.wait(10)
    call.cancel()
    if bench.stack == SYNC:
        bench.script.steps = []
        eventually(lambda: call.cancelled())
        bench.run(_a_moment())
        bench.script.go_on.set()
    eventually(lambda: watch.seen)
    assert [status.code for status in watch.seen] == [CANCELLED]
    eventually(lambda: left(bench) == 9)


async def _a_moment() -> None:
    """Until a server that is not waiting for it has heard of a cancellation."""
    await asyncio.sleep(0.1)


@pytest.mark.parametrize("bench", WOKEN, indirect=True)
def test_a_client_whose_time_is_up(bench: Bench) -> None:
    watch = Watch()
    client = bench.limited(bench.limiter("9/minute"), count_when=watch)
    bench.script.steps = [("reply", "a"), ("pause",), *[("reply", "b")] * 20]
    call = client.start("unary_stream", timeout=0.3)
    assert finish("unary_stream", call).code is grpc.StatusCode.DEADLINE_EXCEEDED
    bench.run(_a_moment())
    bench.script.go_on.set()
    eventually(lambda: watch.seen)
    assert [status.code for status in watch.seen] == [CANCELLED]


def test_count_when_may_be_awaited(bench: Bench) -> None:
    counts = bench.function(lambda status: status.failed)
    client = bench.limited(bench.limiter("9/minute"), count_when=counts)
    client.call()
    eventually(lambda: left(bench) == 9)
    bench.script.steps = [("raise", LookupError("oh"))]
    client.call()
    assert left(bench) == 8


def test_a_count_when_that_fails_spoils_no_call(
    bench: Bench, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(status: Status) -> bool:
        raise RuntimeError("not today")

    client = bench.limited(bench.limiter("9/minute"), count_when=broken)
    with caplog.at_level(logging.ERROR, "penstock"):
        assert client.call(kind).replies == ["hello"]
        eventually(lambda: "stays counted" in caplog.text)
    assert "not today" in caplog.text
    assert left(bench) == 8
