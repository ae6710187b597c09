"""The page for users of throttled-py, aiolimiter, x/time/rate and bucket4j."""

from __future__ import annotations

import inspect

import pytest

from migrating.checks import check_names, left_names
from migrating.tables import NOTHING, Row, names_of, programs, rows, run
from migrating.values import check_values, values

PAGE = "coming-from-limiters"
THROTTLED, AIOLIMITER = rows(PAGE, "throttled-py"), rows(PAGE, "aiolimiter")
ELSEWHERE = [*rows(PAGE, "x/time/rate"), *rows(PAGE, "bucket4j")]
# The functions and methods of golang.org/x/time/rate 0.14, and of bucket4j's Bucket 8.
TIME_RATE = {
    *("NewLimiter", "Every", "Inf", "Sometimes", "Allow", "AllowN", "Wait", "WaitN"),
    *("Tokens", "TokensAt", "Limit", "Burst", "SetLimit", "SetBurst", "SetLimitAt", "SetBurstAt"),
    *("Reserve", "ReserveN", "OK", "Delay", "DelayFrom", "Cancel", "CancelAt"),
}
BUCKET4J = {
    *("tryConsume", "tryConsumeAsMuchAsPossible", "tryConsumeAndReturnRemaining"),
    *("consumeIgnoringRateLimits", "estimateAbilityToConsume", "addTokens", "forceAddTokens"),
    *("reset", "getAvailableTokens", "replaceConfiguration", "asBlocking", "asScheduler"),
    *("toListenable", "asVerbose", "consume", "consumeUninterruptibly"),
    *("capacity", "refillGreedy", "refillIntervally", "refillIntervallyAligned"),
    *("initialTokens", "addLimit"),
}


@pytest.mark.parametrize("row", THROTTLED, ids=str)
def test_a_row_of_throttled_py_gives_the_same(row: Row) -> None:
    pytest.importorskip("throttled")
    check_values(row, "throttled-py")


@pytest.mark.parametrize("row", AIOLIMITER, ids=str)
def test_a_row_of_aiolimiter_gives_the_same(row: Row) -> None:
    pytest.importorskip("aiolimiter")
    check_values(row, "aiolimiter")


@pytest.mark.parametrize("row", ELSEWHERE, ids=str)
def test_our_side_of_a_row_runs(row: Row) -> None:
    assert row.ours or (NOTHING in row.text and row.note)
    names = names_of(PAGE, "python", "throttled-py")
    run(programs(PAGE, "python", row.section), names)
    values(row.ours, names)


def test_nothing_of_throttled_py_is_left_out() -> None:
    throttled = pytest.importorskip("throttled")
    wanted = {
        *inspect.signature(throttled.Throttled).parameters,
        *inspect.signature(throttled.Throttled.limit).parameters,
        *(name for name in vars(throttled.Throttled) if not name.startswith("_")),
        *(name for name in throttled.__all__ if name.startswith("per_")),
        *throttled.RateLimiterType.__members__,
        *(name for name in vars(throttled.exceptions) if name.endswith("Error")),
        *("Throttled", "Quota", "Rate", "Hook", "MemoryStore", "RedisStore", "asyncio"),
    } - {"self"}
    check_names(wanted, left_names(THROTTLED))


def test_nothing_of_aiolimiter_is_left_out() -> None:
    kind = pytest.importorskip("aiolimiter").AsyncLimiter
    wanted = {
        *inspect.signature(kind).parameters,
        *inspect.signature(kind.acquire).parameters,
        *(name for name in vars(kind) if not name.startswith("_")),
    } - {"self"}
    check_names(wanted, left_names(AIOLIMITER))


@pytest.mark.parametrize(("section", "names"), [("x/time/rate", TIME_RATE), ("bucket4j", BUCKET4J)])
def test_nothing_of_other_languages_is_left_out(section: str, names: set[str]) -> None:
    check_names(names, left_names(rows(PAGE, section)))
