"""Errors of ours that a handler raises are the call's status, in every stack."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest

from integrations.grpc.kit import Bench, eventually
from integrations.grpc.test_refusals import details_of
from penstock import CircuitOpen, Limiter, LimitExceeded, LineFull, WaitedTooLong
from penstock.errors import NoSlot, PenstockError
from penstock.integrations.grpc import Status


def exceeded() -> LimitExceeded:
    limiter = Limiter("1/minute")
    limiter.hit("user:7")
    return LimitExceeded("user:7", limiter.hit("user:7"))


ERRORS: list[tuple[Callable[[], PenstockError], grpc.StatusCode, str]] = [
    (exceeded, grpc.StatusCode.RESOURCE_EXHAUSTED, "60"),
    (lambda: LineFull("k", 1, 0, "no place"), grpc.StatusCode.RESOURCE_EXHAUSTED, "1"),
    (lambda: WaitedTooLong("k", 1, 1, "5 s"), grpc.StatusCode.DEADLINE_EXCEEDED, "1"),
    (lambda: NoSlot("k", 1, 1, "Redis is away"), grpc.StatusCode.UNAVAILABLE, "1"),
    (lambda: CircuitOpen("payments", 6.5, "failures"), grpc.StatusCode.UNAVAILABLE, "7"),
]


@pytest.mark.parametrize(("make", "code", "after"), ERRORS, ids=[e[2] + e[1].name for e in ERRORS])
@pytest.mark.parametrize("exempt", [False, True])
def test_every_error_has_its_status(
    bench: Bench,
    kind: str,
    make: Callable[[], PenstockError],
    code: grpc.StatusCode,
    after: str,
    exempt: bool,
) -> None:
    client = bench.limited(bench.limiter("9/minute"), exempt=["test.Echo"] if exempt else ())
    bench.script.steps = [("set_trailing_metadata", [("mine", "1")]), ("raise", make())]
    answer = client.call(kind)
    assert (answer.code, answer.trailing["retry-after"]) == (code, after)
    assert answer.details.endswith(f"; retry after {after} s")
    assert exempt or answer.trailing["mine"] == "1"
    assert "RetryInfo" in details_of(answer)
    assert ("ratelimit", '"default";r=8;t=7') in answer.pairs or exempt


def test_it_tells_of_the_limit_that_refused(bench: Bench, kind: str) -> None:
    bench.script.steps = [("raise", exceeded())]
    answer = bench.limited(bench.limiter("9/minute")).call(kind)
    assert ("ratelimit-policy", '"1/minute";q=1;w=60') in answer.pairs
    assert details_of(answer)["QuotaFailure"].violations[0].subject == "1/minute"


def test_count_when_sees_the_status(bench: Bench, kind: str) -> None:
    codes: list[grpc.StatusCode] = []

    def not_refused(status: Status) -> bool:
        codes.append(status.code)
        return status.code is not grpc.StatusCode.RESOURCE_EXHAUSTED

    limiter = bench.limiter("9/minute")
    client = bench.limited(limiter, key=lambda call: "k", count_when=not_refused)
    bench.script.steps = [("raise", exceeded())]
    client.call(kind)
    client.call(kind)
    eventually(lambda: limiter.peek("k").remaining == 9)
    assert set(codes) == {grpc.StatusCode.RESOURCE_EXHAUSTED}


def test_a_stream_that_has_begun_is_left_alone(bench: Bench) -> None:
    bench.script.steps = [("reply", "one"), ("raise", exceeded())]
    answer = bench.limited(bench.limiter("9/minute")).call("unary_stream")
    assert (answer.replies, answer.code) == (["one"], grpc.StatusCode.UNKNOWN)
