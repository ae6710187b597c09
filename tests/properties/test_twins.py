"""Several implementations, one answer: compiled and not, in memory and in a file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock import Limit
from penstock.testing import FakeClock
from properties.strategies import costs, limits, steps
from twins import load_pure

PURE = load_pure()
FIELDS = (
    "allowed", "remaining", "retry_after", "reset_after", "last", "delay", "overrun", "degraded",
    "_retry", "_delay", "_mark",
)  # fmt: skip
VERBS = (
    "hit", "hit", "hit", "peek", "attempt", "attempt_all", "refund", "settle", "reset",
    "hit_many", "hit_all", "reserve",
)  # fmt: skip


# One key a limit: another one may take the place of a key that has expired, and when the
# clock then steps back to before that, one table still knows it and the other does not.
# Both are right: by then it had all come back.
def play(library: ModuleType, store: Any, clock: FakeClock, limit: Limit, script: Any) -> list[Any]:
    """Everything that a limiter answers to a script, field by field."""
    clock.set(10**18)
    limiter = library.Limiter(str(limit), store=store)
    answers: list[Any] = []
    for step, verb, cost, other in script:
        clock.advance_ns(step)
        if verb == "refund":
            limiter.refund("k", other)
            continue
        if verb == "reset":
            limiter.reset("k")
            continue
        if verb == "settle":
            reservation = limiter.reserve("k", cost=cost)
            if reservation:
                clock.advance_ns(step // 2 if step > 0 else 0)
                reservation.settle(other)
            decisions = [reservation.decision]
        elif verb == "reserve":
            if limit.soft is not None or limit.lockout_ns or "bucket" not in limit.algorithm:
                continue
            patience = -1 if other % 3 == 0 else other * limit.interval_ns // 10
            counters = limiter.counters(None)
            decisions = [counters.reserve("k", cost, patience) for _ in range(1 + other % 4)]
            if decisions[0] and other % 2:
                kept = min(other % 5, cost - 1)
                counters.cancel("k", cost - kept, decisions[0]._mark, kept)
        elif verb == "attempt":
            patience = -1 if other % 3 == 0 else other * limit.interval_ns // 10
            decisions = [limiter.counters(None).attempt("k", cost, patience)]
        elif verb == "attempt_all":
            beside = limiter.counters("3/second burst 77")
            wanted = [(limiter.counters(None), "k", cost), (beside, "k", 1)]
            decisions = limiter.store.hit_each(wanted, attempt=True)
        elif verb == "hit_many":
            decisions = limiter.hit_many(["k", "k"], cost=cost)
        elif verb == "hit_all":
            decisions = [limiter.hit_all([("k", None, cost), ("k", "3/second burst 77", 1)])]
        else:
            decisions = [getattr(limiter, verb)("k", cost=cost)]
        answers += [[str(d.limit), *(getattr(d, field) for field in FIELDS)] for d in decisions]
    return answers


@st.composite
def scripts(draw: st.DrawFn) -> tuple[Limit, list[tuple[int, str, int, int]]]:
    limit = draw(limits())
    one = st.tuples(steps(limit), st.sampled_from(VERBS), costs(limit), st.integers(1, 30))
    return limit, draw(st.lists(one, min_size=1, max_size=40))


@given(scripts())
@settings(max_examples=3 * settings().max_examples)
def test_compiled_and_pure_agree(case: Any) -> None:
    limit, script = case
    clock = FakeClock()
    compiled = play(penstock, penstock.MemoryStore(clock=clock), clock, limit, script)
    assert compiled == play(PURE, PURE.MemoryStore(clock=clock), clock, limit, script)


@given(scripts())
def test_memory_and_file_agree(case: Any) -> None:
    limit, script = case
    clock = FakeClock()
    expected = play(penstock, penstock.MemoryStore(clock=clock), clock, limit, script)
    with tempfile.TemporaryDirectory() as folder:
        for library in (penstock, PURE):
            path = Path(folder, library.__name__ + str(id(library)))
            with library.SharedMemoryStore(
                path, max_keys=100, bytes_per_key=32_768, clock=clock
            ) as store:
                assert expected == play(library, store, clock, limit, script)
