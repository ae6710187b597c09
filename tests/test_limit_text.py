"""Limits from one line of text, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from penstock import AsyncLimiter, Limit, Limiter, LimitError
from penstock.durations import LONGEST
from penstock.limits import limits_of

RIGHT = [
    ("100/minute", Limit(100, "minute")),
    ("5 per 30s", Limit(5, "30s")),
    (
        "5/minute on_failure local share 0.25",
        Limit(5, "minute", on_failure="local", share=0.25),
    ),
    ("5/minute share 1 on_failure open", Limit(5, "minute", on_failure="open", share=1)),
    ("5/1h30m", Limit(5, "90m")),
    ("5/0.5s", Limit(5, "500ms")),
    ("1_000/hour", Limit(1000, "hour")),
    ("  10  /  minute  ", Limit(10, "minute")),
    ("10 PER Minute", Limit(10, "minute")),
    ("1000/hour burst 2000", Limit(1000, "hour", burst=2000)),
    ("5/minute debt 3", Limit(5, "minute", debt=3)),
    ("5/minute lockout 15m", Limit(5, "minute", lockout="15m")),
    ("5/minute warm_up 10m", Limit(5, "minute", warm_up="10m")),
    ("5/minute soft 20 for 10m", Limit(5, "minute", soft=(20, "10m"))),
    ("50/minute soft 20% for 10m", Limit(50, "minute", soft=(10, "10m"))),
    ("5/minute leaky_bucket burst 2", Limit(5, "minute", burst=2, algorithm="leaky_bucket")),
    ("10/day tz Asia/Taipei", Limit(10, "day", algorithm="fixed_window", tz="Asia/Taipei")),
    ("10/day align first_hit", Limit(10, "day", algorithm="fixed_window", align="first_hit")),
    ("10/day fixed_window", Limit(10, "day", algorithm="fixed_window")),
    ("5/minute sliding_window cells 3", Limit(5, "minute", algorithm="sliding_window", cells=3)),
    ("5/minute sliding_window rounding down", Limit(5, "minute", algorithm="sliding_window")),
    (
        "7/minute rounding up sliding_window cells 1",
        Limit(7, "minute", algorithm="sliding_window", cells=1, rounding="up"),
    ),
    (
        "5/minute sliding_log count_rejected lockout 1h",
        Limit(5, "minute", algorithm="sliding_log", count_rejected=True, lockout="1h"),
    ),
    ("5/minute lockout 1h sliding_log", Limit(5, "minute", algorithm="sliding_log", lockout="1h")),
    ("5/minute algorithm sliding_log", Limit(5, "minute", algorithm="sliding_log")),
    ("5/minute BURST 9", Limit(5, "minute", burst=9)),
    ("10 requests per minute", Limit(10, "minute")),
    ("1 request/second", Limit(1, "second")),
    ("10 req/min", Limit(10, "minute")),
    ("10 Requests / minute", Limit(10, "minute")),
    ("5per minute", Limit(5, "minute")),
    ("5 per 30 seconds", Limit(5, "30s")),
    ("100 / minute", Limit(100, "minute")),
    ("1k/minute", Limit(1_000, "minute")),
    ("1K requests per minute", Limit(1_000, "minute")),
    ("2.5k/hour", Limit(2_500, "hour")),
    ("0.5k/hour", Limit(500, "hour")),
    ("1M/day", Limit(1_000_000, "day")),
    ("1,000/hour", Limit(1_000, "hour")),
    ("12,345,678/hour", Limit(12_345_678, "hour")),
    ("10,100/hour", Limit(10_100, "hour")),
    ("0/minute", Limit(0, "minute")),
    ("0/day tz Asia/Taipei", Limit(0, "day", algorithm="fixed_window", tz="Asia/Taipei")),
    ("1/100ms", Limit(1, "100ms")),
    # As nginx writes them.
    ("10r/s", Limit(10, "second")),
    ("10r/m", Limit(10, "minute")),
    # As the `limits` package writes them.
    ("10 per 2 hours", Limit(10, "2h")),
    ("1/second", Limit(1, "second")),
    ("5 per 30 minutes", Limit(5, "30m")),
    ("10 per hour", Limit(10, "hour")),
    ("10/hour", Limit(10, "hour")),
    ("100/10 minutes", Limit(100, "10m")),
    ("1 per 1 day", Limit(1, "day")),
    ("200 per 2 months", Limit(200, "60d")),
    ("1 per year", Limit(1, "year")),
]

EXAMPLE = "write it like '100/minute', '5 per 30s' or '1000/hour burst 2000'"
UNITS = (
    "use one of nanosecond, microsecond, millisecond, second, minute, hour, day, week, month, year"
)
ALGOS = "token_bucket, leaky_bucket, fixed_window, sliding_window, sliding_log"
OPTIONS = (
    "Options are burst, initial, debt, cells, rounding, align, tz, lockout, warm_up, on_failure,"
    f" soft, count_rejected, share, and the name of an algorithm: {ALGOS}"
)
SEVERAL = (
    "names several limits, and this is a place for one: a Limiter takes the text as it is,"
    " Limit.parse each limit by itself"
)
AFTER = f"{{0!r}} means nothing after the amount, where 'requests' may stand: {EXAMPLE}"
COMMA = (
    "is not a limit. A comma stands between two limits; in an amount it groups digits by three"
    " ('1,000/hour'), and after an option no number has one ('burst 1000')"
)
BESIDE = "has a separator without a limit beside it: write several limits like '5/minute; 100/day'"
WRONG = [
    ("", f"'' is an empty limit: {EXAMPLE}"),
    ("  ", f"'  ' is an empty limit: {EXAMPLE}"),
    ("minute", f"'minute' does not start with a number: {EXAMPLE}"),
    ("ten/minute", f"'ten/minute' does not start with a number: {EXAMPLE}"),
    ("1m/day", "'1m/day': a million is written 'M', as in '1M/day', not 'm'"),
    ("10rps", f"'10rps': {AFTER.format('rps')}"),
    ("10 perminute", f"'10 perminute': {AFTER.format('perminute')}"),
    ("1.2345k/hour", f"'1.2345k/hour': the amount '1.2345k' must be a whole number: {EXAMPLE}"),
    ("1.000/hour", f"'1.000/hour': the amount '1.000' must be a whole number: {EXAMPLE}"),
    (
        "000/hour",
        "'000/hour': the number '000' begins with a zero. If it is the end of a larger one, write"
        " that without a comma: '1000'",
    ),
    ("1,00/hour", f"'1,00/hour': '1' {COMMA}"),
    ("1, 000/hour", f"'1, 000/hour': '1' {COMMA}"),
    ("5/minute burst 1,000", f"'5/minute burst 1,000': '000' {COMMA}"),
    ("5/minute;", f"'5/minute;' {BESIDE}"),
    (";5/minute", f"';5/minute' {BESIDE}"),
    ("5/minute;;9/hour", f"'5/minute;;9/hour' {BESIDE}"),
    ("1/s;" * 11 + "1/s", f"'{('1/s;' * 15)[:47]}'... has 12 limits: 10 is the most"),
    (
        "100/minute gcra",
        f"'100/minute gcra': unknown algorithm 'gcra' (token_bucket is GCRA): use one of {ALGOS}",
    ),
    (
        "100/minute fixed-window",
        "'100/minute fixed-window': unknown algorithm 'fixed-window' (did you mean"
        f" 'fixed_window'?): use one of {ALGOS}",
    ),
    ("fast", f"'fast' does not start with a number: {EXAMPLE}"),
    ("per minute", f"'per minute' does not start with a number: {EXAMPLE}"),
    ("100", f"'100' does not say per what time: {EXAMPLE}"),
    ("100 minute", f"'100 minute' does not say per what time: {EXAMPLE}"),
    ("100/", f"'100/' has no unit of time: {EXAMPLE}"),
    ("100/60", f"'100/60' has no unit of time: {EXAMPLE}"),
    ("100/minut", f"'100/minut' has an unknown unit 'minut' (did you mean 'minute'?): {UNITS}"),
    ("100/fortnight", f"'100/fortnight' has an unknown unit 'fortnight': {UNITS}"),
    ("1.5/minute", f"'1.5/minute': the amount '1.5' must be a whole number: {EXAMPLE}"),
    ("-5/minute", f"'-5/minute': the amount '-5' must be a whole number: {EXAMPLE}"),
    ("5/minute burst", "'5/minute burst': burst has no value behind it"),
    ("5/minute burst 3 burst 4", "'5/minute burst 3 burst 4' says burst twice"),
    (
        "5/minute sliding_log fixed_window",
        "'5/minute sliding_log fixed_window' says algorithm twice",
    ),
    (
        "5/minute brust 9",
        f"'5/minute brust 9': 'brust' is not an option (did you mean 'burst'?). {OPTIONS}",
    ),
    ("5/minute burst=9", "'5/minute burst=9': write 'burst 9', without '='"),
    ("5/minute quickly", f"'5/minute quickly': 'quickly' is not an option. {OPTIONS}"),
    (
        "5/minute; 9/hour",
        f"'5/minute; 9/hour' {SEVERAL}",
    ),
    ("1/s, 9/m", f"'1/s, 9/m' {SEVERAL}"),
    ("5/minute share much", "'5/minute share much': share is a number such as 0.25, not 'much'"),
    (
        "5/minute share 1.5",
        "'5/minute share 1.5': share is a number above 0 and at most 1, not 1.5",
    ),
    (
        "5/minute on_failure cry",
        "'5/minute on_failure cry': unknown on_failure 'cry': use one of open, closed, local",
    ),
    ("5/minute soft 2", "'5/minute soft 2': soft has no value behind it"),
    ("5/minute soft 2 or 10m", "'5/minute soft 2 or 10m': soft is written like 'soft 20 for 10m'"),
    (
        "5/minute fixed_window burst 9",
        "'5/minute fixed_window burst 9': burst means nothing to fixed_window:"
        " it needs token_bucket or leaky_bucket",
    ),
    (
        "5/day tz Taipei",
        "'5/day tz Taipei': unknown time zone 'Taipei': use a name such as 'Asia/Taipei'"
        " (the names come from the system's tz database or the tzdata package)",
    ),
]


@pytest.mark.parametrize(("text", "limit"), RIGHT)
def test_reads(text: str, limit: Limit) -> None:
    assert Limit.parse(text) == limit


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_text_says_what_is_wrong_and_shows_a_right_one(text: str, message: str) -> None:
    with pytest.raises(LimitError) as caught:
        Limit.parse(text)
    assert str(caught.value) == message


SEVERAL_RIGHT = [
    ("5/minute", ["5/minute"]),
    ("5/minute;100/day", ["5/minute", "100/day"]),
    ("5/minute, 100/day", ["5/minute", "100/day"]),
    (" 5/minute | 100/day ", ["5/minute", "100/day"]),
    ("1/s;9/m,100/h|1000/d", ["1/second", "9/minute", "100/hour", "1000/day"]),
    ("1,000/hour", ["1000/hour"]),
    ("5/minute,1,000/hour", ["5/minute", "1000/hour"]),
    ("1,000/hour,10,000/day", ["1000/hour", "10000/day"]),
    ("10 per minute, 5 per second", ["10/minute", "5/second"]),
    ("5/minute burst 9; 100/day sliding_log", ["5/minute burst 9", "100/day sliding_log"]),
    ("5/minute burst 6,100/day", ["5/minute burst 6", "100/day"]),
    (
        "5/minute lockout 15m;100/day tz UTC",
        ["5/minute lockout 15m", "100/day fixed_window tz UTC"],
    ),
]


@pytest.mark.parametrize(("text", "wanted"), SEVERAL_RIGHT)
def test_a_text_may_name_several_limits(text: str, wanted: list[str]) -> None:
    assert [str(limit) for limit in limits_of(text)] == wanted


SEVERAL_WRONG: list[tuple[Any, str]] = [
    ("5/minute; 5 per 60s", "'5/minute; 5 per 60s' names '5/minute' twice"),
    (
        "5/minute; 5/minute on_failure open",
        "'5/minute; 5/minute on_failure open' names '5/minute' twice",
    ),
    ("5/minute; 9/hor", f"'9/hor' has an unknown unit 'hor' (did you mean 'hour'?): {UNITS}"),
    (
        "5/minute burst 1,050/day",
        "'050/day': the number '050' begins with a zero. If it is the"
        " end of a larger one, write that without a comma: '1000'",
    ),
    (5, "5 does not say per what time: write '5/minute', or Limit(5, 'minute')"),
    (["5/minute"], "several limits are one string here, such as '5/minute; 100/day'"),
    (None, "a limit is a Limit or a string such as '100/minute', not NoneType"),
]


@pytest.mark.parametrize(("text", "message"), SEVERAL_WRONG)
def test_what_is_wrong_with_several_limits(text: Any, message: str) -> None:
    with pytest.raises(LimitError) as caught:
        limits_of(text)
    assert str(caught.value) == message


def test_a_limiter_says_the_same() -> None:
    for make in (Limiter, AsyncLimiter):
        with pytest.raises(LimitError, match="5 does not say per what time"):
            make(5)  # type: ignore[arg-type]
    with pytest.raises(LimitError, match="5 does not say per what time"):
        Limiter().hit("k", 5)  # type: ignore[arg-type]
    with pytest.raises(LimitError, match="several limits are one string"):
        Limiter().hit("k", ["5/minute"])  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [5, None, b"5/minute"])
def test_only_text_is_read(text: Any) -> None:
    with pytest.raises(LimitError, match=r"^a limit string is a str, not .*: write it like"):
        Limit.parse(text)


def test_an_absurdly_long_number_is_an_error_of_ours() -> None:
    for text in ("9" * 5000 + "/minute", f"5/{'9' * 5000}s", f"5/minute burst {'9' * 5000}"):
        with pytest.raises(LimitError):
            Limit.parse(text)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit(100, "minute"), "100/minute"),
        (Limit(100, 60, burst=100), "100/minute"),
        (Limit(5, "90s"), "5/90s"),
        (Limit(5, "2h"), "5/2h"),
        (Limit(1, "month", burst=3), "1/month burst 3"),
        (Limit(1, "day", algorithm="fixed_window"), "1/day fixed_window"),
        (Limit(1, "day", algorithm="fixed_window", align="epoch"), "1/day fixed_window"),
        (Limit(1, "day", algorithm="fixed_window", align="calendar"), "1/day fixed_window tz UTC"),
        (
            Limit(1, "1d", algorithm="fixed_window", align="first_hit"),
            "1/day fixed_window align first_hit",
        ),
        (
            Limit(1, "1d", algorithm="fixed_window", tz="Asia/Taipei"),
            "1/day fixed_window tz Asia/Taipei",
        ),
        (Limit(9, "1m", debt=2, warm_up="1h"), "9/minute debt 2 warm_up 1h"),
        (Limit(9, "1m", algorithm="leaky_bucket", burst=3), "9/minute leaky_bucket burst 3"),
        (
            Limit(9, "1m", algorithm="sliding_log", count_rejected=True),
            "9/minute sliding_log count_rejected",
        ),
        (Limit(9, "1m", algorithm="sliding_window", cells=3), "9/minute sliding_window cells 3"),
        (Limit(9, "1m", algorithm="sliding_window", cells=10), "9/minute sliding_window"),
        (Limit(9, "1m", algorithm="sliding_window", rounding="down"), "9/minute sliding_window"),
        (
            Limit(9, "1m", algorithm="sliding_window", rounding="up", cells=2, lockout="1h"),
            "9/minute sliding_window cells 2 rounding up lockout 1h",
        ),
        (Limit(9, "1m", soft="2 for 90s", lockout=900), "9/minute lockout 15m soft 2 for 90s"),
    ],
)
def test_str_is_short_and_says_only_what_is_not_the_default(limit: Limit, text: str) -> None:
    assert str(limit) == text
    assert Limit.parse(text) == limit


@st.composite
def any_limit(draw: st.DrawFn) -> Limit:
    def maybe(strategy: st.SearchStrategy[Any]) -> Any:
        return draw(st.none() | strategy)

    nanoseconds = st.one_of(
        st.integers(1, LONGEST), st.sampled_from([10**9, 60 * 10**9, 3600 * 10**9, 86_400 * 10**9])
    ).map("{}ns".format)
    few = st.integers(1, 1000)
    algorithm = draw(
        st.sampled_from(
            ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"]
        )
    )
    options = {"lockout": maybe(nanoseconds), "soft": maybe(st.tuples(few, nanoseconds))}
    if algorithm.endswith("bucket"):
        options |= {"burst": maybe(few), "warm_up": maybe(nanoseconds)}
    if algorithm == "token_bucket":
        options["debt"] = maybe(few)
        options["initial"] = maybe(st.integers(0, 100))
    elif algorithm == "fixed_window":
        options["align"] = maybe(st.sampled_from(["epoch", "calendar", "first_hit"]))
        options["tz"] = maybe(st.sampled_from(["UTC", "Asia/Taipei", "America/New_York"]))
    elif algorithm == "sliding_window":
        options["cells"] = maybe(st.integers(1, 1000))
        options["rounding"] = maybe(st.sampled_from(["down", "up"]))
    elif algorithm == "sliding_log":
        options["count_rejected"] = maybe(st.booleans())
    try:
        amount = draw(st.integers(0, 100) | st.integers(1, 10**12))
        return Limit(amount, draw(nanoseconds), algorithm=algorithm, **options)
    except LimitError:
        assume(False)
        raise


@given(any_limit())
@example(Limit(1, "year"))
@example(Limit(1, "1ns", algorithm="sliding_log"))
def test_any_limit_reads_back_from_its_text(limit: Limit) -> None:
    twin = Limit.parse(str(limit))
    assert twin == limit
    assert hash(twin) == hash(limit)
    assert str(twin) == str(limit)


@given(st.text())
def test_any_text_is_a_limit_or_an_error_of_ours(text: str) -> None:
    try:
        limit = Limit.parse(text)
    except LimitError:
        return
    assert Limit.parse(str(limit)) == limit


@given(st.lists(st.sampled_from([*"0159 /.%_", "per", "minute", "s", "µs", "burst", "tz", "UTC",
       "soft", "for", "lockout", "cells", "align", "epoch", "sliding_log", "rounding", "up",
       "٣"]), max_size=12).map("".join))  # fmt: skip
def test_any_words_are_a_limit_or_an_error_of_ours(text: str) -> None:
    test_any_text_is_a_limit_or_an_error_of_ours.hypothesis.inner_test(text)  # type: ignore[attr-defined]
