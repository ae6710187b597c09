"""From decisions to what a client is sent: the pure part."""

from __future__ import annotations

import grpc
import pytest

from penstock import Decision, Limit
from penstock.decision import decided
from penstock.integrations.grpc import trailers

SECOND = 10**9


def refused(limit: Limit | str, retry: int, degraded: bool = False) -> Decision:
    made = limit if isinstance(limit, Limit) else Limit.parse(limit)
    mark = -1 if degraded else 0  # nothing was asked
    return decided(made, False, 0, 1, retry, retry, 0, False, mark, degraded)


@pytest.mark.parametrize(
    ("retry", "seconds", "pushback"),
    [
        (1, "1", "1"),
        (999_999, "1", "1"),
        (1_000_001, "1", "2"),
        (SECOND, "1", "1000"),
        (SECOND + 1, "2", "1001"),
        (60 * SECOND, "60", "60000"),
        (60 * SECOND + 1, "61", "-1"),
        (86_400 * SECOND, "86400", "-1"),
    ],
)
def test_waits_are_rounded_up(retry: int, seconds: str, pushback: str) -> None:
    refusal = trailers.refusal([("default", refused("1/day", retry))])
    assert dict(refusal.metadata)["retry-after"] == seconds
    assert dict(refusal.metadata)["grpc-retry-pushback-ms"] == pushback
    assert refusal.message == f"Rate limit exceeded; retry after {seconds} s"


def test_of_several_the_longest_wait_counts() -> None:
    told = [("a", refused("1/second", SECOND // 2)), ("b", refused("1/minute", 7 * SECOND))]
    refusal = dict(trailers.refusal(told).metadata)
    assert refusal["retry-after"] == "7"
    assert refusal["ratelimit"] == '"b";r=0;t=7, "a";r=0;t=1'


def test_one_that_never_passes_outweighs_all_waits() -> None:
    told = [("a", refused("1/second", SECOND // 2)), ("b", refused("1/minute", -1))]
    refusal = dict(trailers.refusal(told).metadata)
    assert "retry-after" not in refusal
    assert refusal["grpc-retry-pushback-ms"] == "-1"


def test_a_name_may_be_any_text() -> None:
    refusal = dict(trailers.refusal([('zwölf "x"', refused("1/second", 1))]).metadata)
    assert refusal["ratelimit"] == '"zw%C3%B6lf \\"x\\"";r=0;t=1'


@pytest.mark.parametrize(
    ("policy", "degraded", "code"),
    [
        ("closed", True, grpc.StatusCode.UNAVAILABLE),
        ("closed", False, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ("local", True, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (None, True, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_a_limit_that_cannot_be_asked_is_no_limit_that_was_exceeded(
    policy: str | None, degraded: bool, code: grpc.StatusCode
) -> None:
    limit = Limit(1, "second", on_failure=policy)
    assert trailers.refusal([("default", refused(limit, SECOND, degraded))]).code is code
