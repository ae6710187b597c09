"""A call over its limit, in every stack and for every kind of method."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import QuotaFailure, RetryInfo
from grpc_status import rpc_status

from integrations.grpc.kit import KINDS, Answer, Bench


def details_of(answer: Answer) -> dict[str, Any]:
    """What is packed into the status, by the names of the messages."""
    status = rpc_status.from_call(answer.raw)  # checks code and message against the status
    found = {}
    for packed in status.details:
        for kind in (RetryInfo, QuotaFailure):
            message = kind()
            if packed.Unpack(message):
                found[kind.__name__] = message
    return found


def test_the_first_passes_and_the_second_does_not(bench: Bench, kind: str) -> None:
    client = bench.limited(bench.limiter("1/minute"))
    first, second = client.call(kind), client.call(kind)
    assert (first.code, first.replies) == (grpc.StatusCode.OK, ["hello"])
    assert second.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert second.details == "Rate limit exceeded; retry after 60 s"
    assert second.replies == []
    assert bench.script.runs == 1, "a handler ran that was refused"


def test_what_a_refusal_says(bench: Bench, kind: str) -> None:
    client = bench.limited(bench.limiter("2/minute"))
    assert [client.call(kind).passed for _ in range(2)] == [True, True]
    bench.clock.advance(27.25)
    refused = client.call(kind)
    assert refused.trailing["retry-after"] == "3"
    assert refused.trailing["ratelimit"] == '"default";r=0;t=3'
    assert refused.trailing["ratelimit-policy"] == '"default";q=2;w=60'
    details = details_of(refused)
    delay = details["RetryInfo"].retry_delay
    assert (delay.seconds, delay.nanos) == (2, 750_000_000)
    (violation,) = details["QuotaFailure"].violations
    assert (violation.subject, violation.description) == ("default", "limit of 2/minute")


def test_the_promise_is_kept_to_the_nanosecond(bench: Bench) -> None:
    client = bench.limited(bench.limiter("3/minute burst 1"))
    assert client.call().passed
    delay = details_of(client.call())["RetryInfo"].retry_delay
    bench.clock.advance((delay.ToNanoseconds() - 1) / 1e9)
    assert not client.call().passed
    bench.clock.advance(1e-9)
    assert client.call().passed


def test_who_can_never_pass_is_told_no_time(bench: Bench) -> None:
    refused = bench.limited(bench.limiter("5/minute"), cost=6).call()
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.details == "Rate limit exceeded; no waiting helps"
    assert "retry-after" not in refused.trailing
    assert list(details_of(refused)) == ["QuotaFailure"]


def test_allowed_calls_are_told_where_they_stand(bench: Bench, kind: str) -> None:
    client = bench.limited(bench.limiter("10/minute"))
    assert [client.call(kind).trailing["ratelimit"] for _ in range(2)] == [
        '"default";r=9;t=6',
        '"default";r=8;t=12',
    ]
    assert client.call(kind).trailing["ratelimit-policy"] == '"default";q=10;w=60'


def test_a_stream_is_checked_once_when_it_opens(bench: Bench) -> None:
    client = bench.limited(bench.limiter("1/minute"))
    bench.script.steps = [("read",), *[("reply", str(n)) for n in range(20)]]
    answer = client.call("stream_stream", tuple("abcdef"))
    assert answer.replies == [str(n) for n in range(20)]
    assert bench.script.notes == [list("abcdef")]
    assert not client.call("stream_stream", tuple("abcdef")).passed


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("stream")])
def test_a_refused_stream_of_requests_is_not_read(bench: Bench, kind: str) -> None:
    client = bench.limited(bench.limiter("1/minute"))
    bench.script.steps = [("read",), ("reply", "hello")]
    client.call(kind, ("a",))
    assert not client.call(kind, ("b",)).passed
    assert bench.script.notes == [["a"]]


def test_requests_and_responses_keep_their_serializers(bench: Bench, kind: str) -> None:
    plain = bench.serve(bench.interceptor("9/minute"), handlers=_shouting(bench, kind))
    assert bench.connect(plain).call(kind, ("quiet",)).replies == ["<QUIET>"]


def _shouting(bench: Bench, kind: str) -> dict[str, Any]:
    """Handlers of text, that is upper case only because of the deserializer."""
    asynchronous = bench.stack in ("aio", "aio-writer")
    many_in, many_out = kind.startswith("stream"), kind.endswith("stream")

    def unary(request: Any, context: Any) -> list[str]:
        return ["".join(request)]

    def stream(request: Any, context: Any) -> Any:
        yield ["".join(request)]

    async def unary_async(request: Any, context: Any) -> list[str]:
        return ["".join([text async for text in request] if many_in else request)]

    async def stream_async(request: Any, context: Any) -> Any:
        yield ["".join([text async for text in request] if many_in else request)]

    if many_out:
        behaviour: Any = stream_async if asynchronous else stream
    else:
        behaviour = unary_async if asynchronous else unary
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    handler = make(
        behaviour,
        request_deserializer=lambda raw: raw.decode().upper(),
        response_serializer=lambda words: f"<{words[0]}>".encode(),
    )
    return {kind: handler}


def test_several_limits_are_taken_from_all_or_none(bench: Bench) -> None:
    limits = ["3/second", "4/minute"]
    client = bench.limited(bench.limiter(), limit=limits)
    answers = [client.call() for _ in range(4)]
    assert [answer.passed for answer in answers] == [True, True, True, False]
    assert answers[-1].trailing["retry-after"] == "1"
    violations = details_of(answers[-1])["QuotaFailure"].violations
    assert [violation.subject for violation in violations] == ["3/second"]
    bench.clock.advance(1)
    assert client.call().trailing["ratelimit"].startswith('"4/minute";r=0;t=')
    assert client.call().trailing["retry-after"] == "14"


def test_an_unknown_method_is_not_counted(bench: Bench) -> None:
    client = bench.limited(bench.limiter("1/minute"))
    for _ in range(2):
        assert client.call(method="nowhere").code is grpc.StatusCode.UNIMPLEMENTED
    assert client.call().passed


def test_a_client_with_a_retry_policy_waits_as_it_is_told(bench: Bench) -> None:
    config = (
        '{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, '
        '"initialBackoff": "9s", "maxBackoff": "9s", "backoffMultiplier": 1, '
        '"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}'
    )
    target = bench.serve(bench.interceptor("10/second burst 1"))
    client = bench.connect(target, ("grpc.service_config", config))
    assert [client.call(timeout=5).passed for _ in range(3)] == [True, True, True]
    never = bench.connect(
        bench.serve(bench.interceptor("1/second", cost=2)), ("grpc.service_config", config)
    )
    assert never.call(timeout=5).code is grpc.StatusCode.RESOURCE_EXHAUSTED
