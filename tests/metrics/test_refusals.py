"""RecentRefusals: since when, how often and why; bounded."""

from __future__ import annotations

from typing import Any

from penstock.clock import SECOND
from penstock.metrics.refusals import MOST_REFUSALS, PAUSE, RecentRefusals, merge

USER = (("user", "42"),)


def add(refusals: RecentRefusals, now: int, pairs: Any = USER, wait: int | None = 0) -> None:
    refusals.add("api", "api/user", (pairs,), pairs, "limit", "2/hour", wait, now)


def only(refusals: RecentRefusals) -> dict[str, Any]:
    (row,) = refusals.of("user", "42")
    return row


def test_refusals_belong_together_until_a_pause() -> None:
    refusals = RecentRefusals()
    for now in (SECOND, 2 * SECOND, 2 * SECOND + PAUSE):
        add(refusals, now)
    assert (only(refusals)["since"], only(refusals)["count"]) == (1.0, 3)
    add(refusals, 3 * SECOND + 2 * PAUSE)
    assert (only(refusals)["since"], only(refusals)["count"]) == (123.0, 1)


def test_a_pause_in_which_the_client_should_wait_is_none() -> None:
    refusals = RecentRefusals()
    add(refusals, 0, wait=3600 * SECOND)
    add(refusals, 3600 * SECOND, wait=None)
    assert (only(refusals)["since"], only(refusals)["count"]) == (0.0, 2)


def test_memory_is_bounded() -> None:
    refusals = RecentRefusals()
    add(refusals, 0)
    for n in range(3 * MOST_REFUSALS):
        add(refusals, n, (("user", f"{n}" * 500),))
        if n % 10 == 0:
            add(refusals, n)
    assert len(refusals) == MOST_REFUSALS
    assert only(refusals)["count"] > 100, "what is refused again stays"
    longest = max(len(value) for _, (pairs,), _ in refusals._rows for _, value in pairs)
    assert longest <= 200
    last = f"{3 * MOST_REFUSALS - 1}" * 500
    assert len(refusals.of("user", last)) == 1, "found by the whole value"


def test_rows_of_workers_are_summed() -> None:
    one, other = RecentRefusals(), RecentRefusals()
    for now in (5, 6):
        add(one, now * SECOND)
    add(other, 2 * SECOND)
    add(other, 9 * SECOND, (("tenant", "a"), ("user", "42")))
    rows = merge([*one.of("user", "42"), *other.of("user", "42")])
    assert [(row["since"], row["last"], row["count"]) for row in rows] == [
        (9.0, 9.0, 1), (2.0, 6.0, 3),
    ]  # fmt: skip
