"""Limits, and what happens to them: drawn by Hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from penstock import Limit

# Small numbers meet each other; odd periods make intervals that do not divide.
AMOUNTS = st.one_of(st.integers(1, 8), st.integers(1, 1_000), st.just(10**9))
PERIODS = st.one_of(
    st.integers(1, 60).map(lambda n: f"{n}s"),
    st.sampled_from(["7ns", "1us", "100ms", "1m", "1h", "1d", "30d", "1001ms"]),
)
DURATIONS = st.sampled_from(["1s", "90s", "15m"])


def _optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.none(), strategy)


@st.composite
def limits(draw: st.DrawFn, algorithms: tuple[str, ...] = (), plain: bool = False) -> Limit:
    """Any valid limit; ``plain`` without options that reach beyond a key's own units."""
    algorithm = draw(
        st.sampled_from(
            algorithms
            or ("token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log")
        )
    )
    amount, per = draw(AMOUNTS), draw(PERIODS)
    options: dict[str, Any] = {"algorithm": algorithm}
    buckets = algorithm in ("token_bucket", "leaky_bucket")
    if buckets:
        options["burst"] = draw(_optional(st.integers(1, 20)))
    if algorithm == "token_bucket" and not plain and draw(st.integers(0, 3)) == 0:
        most = options["burst"] or amount
        initial = draw(st.one_of(st.just(0), st.integers(0, most)))
        try:
            return Limit(amount, per, **options, initial=initial)
        except ValueError:
            return Limit(min(amount, 7), "10s", algorithm=algorithm, initial=0)
    if algorithm == "fixed_window":
        options["align"] = draw(st.sampled_from(["epoch", "first_hit"]))
    if algorithm == "sliding_window":
        options["cells"] = draw(st.sampled_from([1, 2, 3, 5, 7]))
        options["rounding"] = draw(st.sampled_from(["down", "up"]))
    if algorithm == "sliding_log":
        amount = min(amount, 1_000)
    if not plain:
        options["lockout"] = draw(_optional(DURATIONS))
        soft = st.tuples(st.integers(1, 5), DURATIONS)
        if algorithm == "token_bucket" and draw(st.booleans()):
            options["debt"] = draw(st.integers(1, 10))
        elif algorithm == "sliding_log" and draw(st.booleans()):
            options["count_rejected"] = True
        else:
            options["soft"] = draw(_optional(soft))
        if buckets:
            options["warm_up"] = draw(_optional(DURATIONS))
    try:
        return Limit(amount, per, **options)
    except ValueError:
        # Too fast or too long for its options: an ordinary one of the same kind instead.
        options.pop("burst", None)
        options.pop("warm_up", None)
        return Limit(min(amount, 7), "10s", **options)


def steps(limit: Limit) -> st.SearchStrategy[int]:
    """Nanoseconds that pass: around the limit's own times, long ones, and backwards."""
    unit, period = max(1, limit.interval_ns), limit.period_ns
    return st.one_of(
        st.just(0),
        st.integers(0, 2 * unit),
        st.integers(0, 2 * period),
        st.integers(-3 * period, 0),
        st.sampled_from([unit - 1, unit, unit + 1, period - 1, period, period + 1]),
    )


def costs(limit: Limit) -> st.SearchStrategy[int]:
    return st.one_of(st.just(1), st.integers(1, 3), st.integers(1, 2 * limit.burst))
