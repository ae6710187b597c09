"""What is counted in the end: given back by how the call ended."""

from __future__ import annotations

import asyncio
import logging
import threading
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
    assert bench.script.paused.wait(60)
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
    assert bench.script.paused.wait(60)
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
    assert bench.script.paused.wait(60)
    assert left(bench) == 8
    call.cancel()
    assert finish("stream_stream", call).code is CANCELLED
    if bench.stack == SYNC:  # nothing wakes a thread that sleeps
        bench.script.go_on.set()
    assert bench.script.left.wait(60), "the handler was not closed"
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
    assert bench.script.left.wait(60)
    eventually(lambda: left(bench) == 9)
    assert [status.code for status in watch.seen] == [CANCELLED]
    assert closed == [True], "count_when was asked before the handler had ended"


def _cancel_while_it_works(bench: Bench, client: Any, kind: str = "unary_unary") -> None:
    call = client.start(kind)
    assert bench.script.paused.wait(60)
    call.cancel()
    if bench.stack == SYNC:  # nothing wakes a thread that sleeps
        eventually(lambda: call.cancelled())
        bench.run(_a_moment())
        bench.script.go_on.set()
    assert bench.script.left.wait(60)


@pytest.mark.parametrize("bench", [SYNC, AIO, AIO_WRITER], indirect=True)
@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
def test_a_client_that_cancels_before_it_is_answered(bench: Bench, kind: str) -> None:
    """Nobody is asked: the handler may have done all that it was asked for."""
    if bench.stack == AIO_WRITER and kind == "unary_unary":
        pytest.skip("nothing is written there")
    watch = Watch()
    client = bench.limited(bench.limiter("9/minute"), count_when=watch)
    bench.script.steps = [("pause",), ("raise", LookupError("gone"))]
    _cancel_while_it_works(bench, client, kind)
    bench.run(_a_moment())
    assert watch.seen == []
    assert left(bench) == 8


@pytest.mark.parametrize("bench", [SYNC], indirect=True)
@pytest.mark.parametrize(
    ("end", "code"), [(REPLY, OK), (("abort", DENIED, "who?"), DENIED)], ids=["reply", "abort"]
)
def test_an_answer_that_nobody_waits_for_is_an_answer(bench: Bench, end: Any, code: Any) -> None:
    """A thread goes on to its end: whoever guesses and hangs up is counted as one who stays."""
    watch = Watch(lambda status: status.code is DENIED)
    client = bench.limited(bench.limiter("9/minute"), count_when=watch)
    bench.script.steps = [("pause",), end]
    _cancel_while_it_works(bench, client)
    eventually(lambda: watch.seen)
    assert [status.code for status in watch.seen] == [code]
    eventually(lambda: left(bench) == (9 if code is OK else 8))


@pytest.mark.parametrize("bench", [SYNC], indirect=True)
def test_a_failure_that_nobody_waits_for_stays_counted(bench: Bench) -> None:
    watch = Watch(lambda status: not status.failed)
    client = bench.limited(bench.limiter("9/minute"), count_when=watch)
    bench.script.steps = [("pause",), ("abort", grpc.StatusCode.INTERNAL, "the client is gone")]
    _cancel_while_it_works(bench, client)
    bench.run(_a_moment())
    assert (watch.seen, left(bench)) == ([], 8)


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


@pytest.mark.parametrize("bench", [AIO], indirect=True)
def test_a_handler_that_makes_another_error_of_a_cancellation(bench: Bench) -> None:
    begun, over = threading.Event(), threading.Event()

    async def stubborn(request: bytes, context: Any) -> bytes:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise LookupError("something else") from None
        finally:
            over.set()
        return request

    watch = Watch(lambda status: not status.failed)
    interceptor = bench.interceptor(bench.limiter("9/minute"), count_when=watch)
    handlers = {"unary_unary": grpc.unary_unary_rpc_method_handler(stubborn)}
    client = bench.connect(bench.serve(interceptor, handlers=handlers))
    call = client.start()
    assert begun.wait(60)
    call.cancel()
    assert over.wait(60)
    bench.run(_a_moment())
    assert left(bench) == 8
    assert not watch.seen


# Several interceptors ------------------------------------------------------------------------


def _by_who(call: Any) -> str | None:
    who: str | None = call.text("who")
    return who


@pytest.mark.parametrize("settles", [False, True])
def test_what_a_later_interceptor_refuses_is_given_back(
    bench: Bench, kind: str, settles: bool
) -> None:
    """Else one caller who is refused would empty what all share."""
    watch = Watch(lambda status: True)
    more: dict[str, Any] = {"count_when": watch} if settles else {}
    everybody = bench.interceptor(bench.limiter("9/minute"), key=lambda call: "all", **more)
    middle = bench.interceptor(bench.limiter("8/minute"), key=lambda call: "all")
    each = bench.interceptor(bench.limiter("2/minute"), key=_by_who)
    client = bench.connect(bench.serve(everybody, middle, each))
    calls = [client.call(kind, metadata=(("who", "greedy"),)) for _ in range(30)]
    assert [call.passed for call in calls] == [True] * 2 + [False] * 28
    told = sorted(value for name, value in calls[-1].pairs if name == "ratelimit")
    assert told == ['"default";r=0;t=30', '"default";r=6;t=15', '"default";r=7;t=14']
    assert bench.limiter("9/minute").peek("all").remaining == 7
    assert bench.limiter("8/minute").peek("all").remaining == 6
    if settles:
        eventually(lambda: len(watch.seen) == 2)
    assert client.call(kind, metadata=(("who", "other"),)).passed


def test_many_calls_at_once_take_what_was_let_in(bench: Bench) -> None:
    everybody = bench.interceptor(bench.limiter("100/minute"), key=lambda call: "all")
    each = bench.interceptor(bench.limiter("3/minute"), key=_by_who)
    client = bench.connect(bench.serve(everybody, each))
    calls = [client.start(metadata=(("who", f"user {at % 4}"),)) for at in range(80)]
    answers = [finish("unary_unary", call).passed for call in calls]
    assert sum(answers) == 12
    assert bench.limiter("100/minute").peek("all").remaining == 88


# Lockouts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bench", [SYNC, AIO], indirect=True)
def test_log_ins_at_once_start_no_lockout_before_they_have_failed(bench: Bench) -> None:
    interceptor = bench.interceptor(
        bench.limiter("3/minute lockout 15m"),
        count_when=lambda status: status.code is DENIED,
        key=lambda call: "k",
    )
    client = bench.connect(bench.serve(interceptor))
    bench.script.steps = [("pause",), ("reply", "welcome")]
    calls = [client.start() for _ in range(6)]
    eventually(lambda: sum(each.done() for each in calls) == 3)
    limiter = bench.limiter("3/minute lockout 15m")
    assert (limiter.peek("k").retry_after or 0) <= 60, "three were refused, and that was all"
    bench.script.go_on.set()
    assert sum(finish("unary_unary", each).passed for each in calls) == 3
    eventually(lambda: limiter.peek("k").remaining == 3)
    bench.script.steps = [("abort", DENIED, "who?")]
    codes = [client.call().code for _ in range(4)]
    assert codes == [DENIED] * 3 + [grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert limiter.peek("k").retry_after == 900.0
