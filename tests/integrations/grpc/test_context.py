"""What a handler sets is its own: the interceptor only adds to it."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc.status_pb2 import Status as Rich
from grpc_status import rpc_status

from integrations.grpc.kit import AIO, AIO_WRITER, SYNC, Bench

OURS = ("ratelimit", "ratelimit-policy")
NOT_FOUND = grpc.StatusCode.NOT_FOUND


def own(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [pair for pair in pairs if pair[0] not in OURS]


def test_trailing_metadata_of_a_handler_is_kept(bench: Bench, kind: str) -> None:
    client = bench.limited(bench.limiter("9/minute"))
    bench.script.steps = [
        ("set_trailing_metadata", (("lost", "1"),)),
        ("set_trailing_metadata", [("mine", "1"), ("mine", "2"), ("raw-bin", b"\0\xff")]),
        ("reply", "hello"),
    ]
    answer = client.call(kind)
    assert own(answer.pairs) == [("mine", "1"), ("mine", "2"), ("raw-bin", b"\0\xff")]
    assert answer.trailing["ratelimit"] == '"default";r=8;t=7'


def test_metadata_that_is_set_between_responses_is_kept(bench: Bench) -> None:
    client = bench.limited(bench.limiter("9/minute"))
    late = ("set_trailing_metadata", (("late", "1"),))
    bench.script.steps = [("reply", "a"), late, ("reply", "b")]
    answer = client.call("unary_stream")
    assert answer.replies == ["a", "b"]
    assert own(answer.pairs) == [("late", "1")]
    assert answer.trailing["ratelimit"] == '"default";r=8;t=7'


def test_initial_metadata_is_the_handlers_alone(bench: Bench, kind: str) -> None:
    client = bench.limited(bench.limiter("9/minute"))
    bench.script.steps = [("send_initial_metadata", (("early", "1"),)), ("reply", "hello")]
    answer = client.call(kind)
    assert [(name, value) for name, value in answer.raw.initial_metadata()] == [("early", "1")]
    assert answer.replies == ["hello"]


def test_a_handler_that_aborts(bench: Bench, kind: str) -> None:
    client = bench.limited(bench.limiter("9/minute"))
    bench.script.steps = [
        ("set_trailing_metadata", (("mine", "1"),)),
        ("abort", NOT_FOUND, "not here"),
    ]
    answer = client.call(kind)
    assert (answer.code, answer.details) == (NOT_FOUND, "not here")
    assert own(answer.pairs) == [("mine", "1")]
    assert answer.trailing["ratelimit"] == '"default";r=8;t=7'


def test_a_handler_that_aborts_with_metadata(bench: Bench, kind: str) -> None:
    client = bench.limited(bench.limiter("9/minute"))
    bench.script.steps = [("abort", NOT_FOUND, "not here", (("mine", "1"),))]
    answer = client.call(kind)
    assert (answer.code, answer.details) == (NOT_FOUND, "not here")
    assert own(answer.pairs) == [("mine", "1")]
    assert answer.trailing["ratelimit"] == '"default";r=8;t=7'


def test_a_handler_that_aborts_with_a_status(bench: Bench, kind: str) -> None:
    client = bench.limited(bench.limiter("9/minute"))
    rich = Rich(code=NOT_FOUND.value[0], message="not here")
    rich.details.add().Pack(Rich(message="more"))
    bench.script.steps = [("abort_with_status", rpc_status.to_status(rich))]
    answer = client.call(kind)
    assert rpc_status.from_call(answer.raw) == rich
    assert answer.trailing["ratelimit"] == '"default";r=8;t=7'


def test_a_handler_that_raises(bench: Bench, kind: str) -> None:
    client = bench.limited(bench.limiter("9/minute"))
    bench.script.steps = [("raise", LookupError("oh"))]
    answer = client.call(kind)
    assert answer.code is grpc.StatusCode.UNKNOWN
    assert "oh" in answer.details
    assert answer.trailing["ratelimit"] == '"default";r=8;t=7'


def test_a_handler_that_sets_a_code(bench: Bench) -> None:
    client = bench.limited(bench.limiter("9/minute"))
    bench.script.steps = [
        ("set_code", NOT_FOUND),
        ("set_details", "not here"),
        ("reply", ""),
    ]
    answer = client.call("unary_stream")
    assert (answer.code, answer.details) == (NOT_FOUND, "not here")


def test_all_else_of_a_context_is_there(bench: Bench) -> None:
    client = bench.limited(bench.limiter("9/minute"))
    bench.script.steps = [
        ("note", lambda context: dict(context.invocation_metadata())["who"]),
        ("note", lambda context: context.peer().partition(":")[0]),
        ("note", lambda context: context.time_remaining() > 0),
        ("set_trailing_metadata", (("mine", "1"),)),
        ("note", lambda context: context.trailing_metadata()),
        ("set_compression", grpc.Compression.Gzip),
        ("reply", "hello"),
    ]
    assert client.call(metadata=(("who", "me"),)).passed
    assert bench.script.notes == ["me", "ipv4", True, (("mine", "1"),)]


@pytest.mark.parametrize("bench", [SYNC], indirect=True)
def test_the_context_is_still_one(bench: Bench) -> None:
    client = bench.limited(bench.limiter("9/minute"))
    bench.script.steps = [
        ("note", lambda context: isinstance(context, grpc.ServicerContext)),
        ("reply", "hello"),
    ]
    client.call()
    assert bench.script.notes == [True]


class Stamp:
    """Somebody else's interceptor, which sets trailing metadata before the handler runs."""

    def __init__(self, stack: str) -> None:
        self._stack = stack

    def _around(self, handler: Any) -> Any:
        def before(context: Any) -> None:
            context.set_trailing_metadata((("stamp", "1"),))

        behaviour = handler.unary_unary

        def plain(request: Any, context: Any) -> Any:
            before(context)
            return behaviour(request, context)

        async def coroutine(request: Any, context: Any) -> Any:
            before(context)
            return await behaviour(request, context)

        is_async = self._stack in (AIO, AIO_WRITER)
        return grpc.unary_unary_rpc_method_handler(coroutine if is_async else plain)


class SyncStamp(Stamp, grpc.ServerInterceptor):
    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        return self._around(continuation(handler_call_details))


class AioStamp(Stamp, grpc.aio.ServerInterceptor):
    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        return self._around(await continuation(handler_call_details))


# In AIO_THREADS it is not: the context of plain functions cannot say what was set.
@pytest.mark.parametrize("bench", [SYNC, AIO, AIO_WRITER], indirect=True)
def test_what_another_interceptor_has_set_is_kept(bench: Bench) -> None:
    stamp = (AioStamp if bench.asynchronous else SyncStamp)(bench.stack)
    ours = bench.interceptor(bench.limiter("1/minute"))
    client = bench.connect(bench.serve(stamp, ours))
    passed, refused = client.call(), client.call()
    assert own(passed.pairs) == [("stamp", "1")]
    assert not refused.passed
    assert refused.trailing["stamp"] == "1"
    assert refused.trailing["retry-after"] == "60"


def test_two_interceptors_both_tell_and_both_refuse(bench: Bench, kind: str) -> None:
    wide = bench.interceptor(bench.limiter("2/minute"), key=lambda call: "all")
    narrow = bench.interceptor(bench.limiter("1/hour"), key=lambda call: call.text("who"))
    client = bench.connect(bench.serve(wide, narrow))
    first = client.call(kind, metadata=(("who", "a"),))
    told = [value for name, value in first.pairs if name == "ratelimit"]
    assert sorted(told) == ['"default";r=0;t=3600', '"default";r=1;t=30']
    second = client.call(kind, metadata=(("who", "a"),))
    assert second.details == "Rate limit exceeded; retry after 3600 s"
    told = [value for name, value in second.pairs if name == "ratelimit"]
    assert sorted(told) == ['"default";r=0;t=3600', '"default";r=1;t=30'], "it was given back"
    assert client.call(kind, metadata=(("who", "b"),)).passed
    third = client.call(kind, metadata=(("who", "c"),))
    assert third.details == "Rate limit exceeded; retry after 30 s"
    assert [value for name, value in third.pairs if name == "retry-after"] == ["30"]
