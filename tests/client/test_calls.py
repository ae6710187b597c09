"""One call after another: tables of what a server answers and what becomes of it.

Every case is played to all transports, which must do the same.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.script import PLAYERS, Answer, Outcome, Play, Script
from penstock.client import Retries, Tries

OK: Answer = (200, {})
NO: Answer = (429, {})
GET = ("GET", None)
DATE = "Mon, 01 Jan 2024 00:00:00 GMT"  # where the virtual clock begins


def no(after: object, status: int = 429, **more: str) -> Answer:
    return status, {"Retry-After": str(after)} | {
        name.replace("_", "-"): text for name, text in more.items()
    }


@pytest.fixture(params=PLAYERS.values(), ids=PLAYERS)
def play(request: pytest.FixtureRequest) -> Play:
    player: Play = request.param
    return player


@pytest.mark.parametrize(
    ("answers", "options", "status", "seen"),
    [
        # nothing to do
        ([OK], {}, 200, [0]),
        ([(404, {})], {}, 404, [0]),
        ([(500, {})], {}, 500, [0]),
        ([(503, {})], {}, 503, [0]),
        # refused, then not
        ([no(2), OK], {}, 200, [0, 2]),
        ([no(2), no(3), OK], {}, 200, [0, 2, 5]),
        ([no(2, 503), OK], {}, 200, [0, 2]),
        ([no("Mon, 01 Jan 2024 00:00:07 GMT"), OK], {}, 200, [0, 7]),
        ([no("Tue, 02 Jan 2024 00:00:07 GMT", date="Tue, 02 Jan 2024 00:00:00 GMT"), OK], {},
         200, [0, 7]),
        ([no("Sun, 31 Dec 2023 00:00:07 GMT", date="Sun, 31 Dec 2023 00:00:00 GMT"), OK], {},
         200, [0, 7]),
        ([no("rubbish"), OK], {}, 200, [0, 0]),
        ([NO, OK], {}, 200, [0, 0]),
        # refused for good
        ([no(2)], {"retries": 0}, 429, [0]),
        ([no(2)], {"retries": 2}, 429, [0, 2, 4]),
        ([no(2)], {"retries": Retries(2)}, 429, [0, 2, 4]),
        # no time left: the refusal comes back at once
        ([no(61), OK], {}, 429, [0]),
        ([no(60), OK], {}, 200, [0, 60]),
        ([no(40), no(40), OK], {}, 429, [0, 40]),
        ([no(2), OK], {"timeout": 1}, 429, [0]),
        ([no(3600), OK], {"timeout": None}, 200, [0, 3600]),
        # no budget left
        ([no(1)], {"retries": Retries(9, budget=0, floor=3)}, 429, [0, 1, 2, 3]),
        ([no(1)], {"retries": Retries(9, budget=0, floor=0)}, 429, [0]),
        ([no(1)], {"retries": Retries(9, budget=1, floor=0)}, 429, [0, 1]),
        # the connection
        (["down", OK], {}, None, [0]),
        (["down", OK], {"retries": Retries(5, errors=True)}, 200, [0, 0]),
        (["down"], {"retries": Retries(2, errors=True)}, None, [0, 0, 0]),
        ([no(1), "down", OK], {"retries": Retries(5, errors=True)}, 200, [0, 1, 1]),
        (["down", no(61)], {"retries": Retries(5, errors=True)}, 429, [0, 0]),
    ],
)  # fmt: skip
def test_what_becomes_of_a_call(
    play: Play,
    answers: list[Answer],
    options: dict[str, Any],
    status: int | None,
    seen: list[float],
) -> None:
    script = Script(answers)
    outcome = play(script, GET, chance=lambda: 0.0, **options)
    assert script.seen == seen
    if status is None:
        assert outcome == Outcome(None, error="ConnectError")
    else:
        assert outcome == Outcome(status, b"said", Tries(len(seen), seen[-1]))
    answered = sum(answer != "down" for answer in answers[: len(seen) - 1])
    assert script.closed >= answered, "what was retried was let go of"


@pytest.mark.parametrize(
    ("answers", "seen"),
    [
        ([NO, NO, NO, OK], [0, 0.5, 1.5, 3.5]),
        ([no(2), no(2), OK], [0, 2.5, 5.5]),
        ([NO] * 6, [0, 0.5, 1.5, 3.5, 7.5, 15.5]),
    ],
)
def test_backoff_doubles_and_is_added_to_what_was_asked_for(
    play: Play, answers: list[Answer], seen: list[float]
) -> None:
    script = Script(answers)
    play(script, GET, chance=lambda: 1.0, learn=False)
    assert script.seen == seen


def test_backoff_has_an_end(play: Play) -> None:
    script = Script([NO])
    retries = Retries(6, first=1, longest=3)
    play(script, GET, chance=lambda: 1.0, learn=False, retries=retries)
    assert script.seen == [0, 1, 3, 6, 9, 12, 15]


@pytest.mark.parametrize(
    ("ask", "retries", "tried"),
    [
        (("GET", None), Retries(), 2),
        (("HEAD", None), Retries(), 2),
        (("PUT", b"body"), Retries(), 2),
        (("DELETE", None), Retries(), 2),
        (("OPTIONS", None), Retries(), 2),
        (("TRACE", None), Retries(), 2),
        (("POST", b"body"), Retries(), 1),
        (("PATCH", b"body"), Retries(), 1),
        (("POST", b"body"), Retries(methods=["post"]), 2),
        (("GET", None), Retries(methods=["POST"]), 1),
        (("PUT", [b"a", b"b"]), Retries(), 1),
    ],
)
def test_only_what_may_be_sent_twice_is(
    play: Play, ask: tuple[str, Any], retries: Retries, tried: int
) -> None:
    script = Script([no(1), OK])
    body = ask[1] if not isinstance(ask[1], list) else iter(ask[1])
    outcome = play(script, (ask[0], body), retries=retries, chance=lambda: 0.0)
    assert len(script.seen) == tried
    assert outcome.status == (200 if tried == 2 else 429)
    assert set(script.bodies) == {b"ab" if isinstance(ask[1], list) else ask[1] or b""}


_answer = st.one_of(
    st.just(OK),
    st.just(NO),
    st.just("down"),
    st.integers(0, 40).map(no),
    st.integers(0, 40).map(lambda after: no(after, 503)),
    st.tuples(st.integers(0, 30), st.integers(0, 20), st.integers(1, 30)).map(
        lambda policy: (200, {"RateLimit": f'"p";r={policy[0]};t={policy[1]}',
                            "RateLimit-Policy": f'"p";q={policy[2]};w=20'})
    ),
)  # fmt: skip


@given(
    st.lists(_answer, min_size=1, max_size=8),
    st.sampled_from([GET, ("PUT", b"body"), ("POST", b"body")]),
    st.floats(0, 1),
    st.builds(Retries, st.integers(0, 6), errors=st.booleans(), floor=st.integers(0, 4)),
    st.sampled_from([None, 0, 5, 60]),
)
def test_all_transports_do_the_same(
    answers: list[Answer], ask: tuple[str, Any], chance: float, retries: Retries, timeout: Any
) -> None:
    outcomes = []
    for play in PLAYERS.values():
        script = Script(answers)
        outcome = play(script, ask, chance=lambda: chance, retries=retries, timeout=timeout)
        outcomes.append((outcome, script.seen, script.now))
    assert all(outcome == outcomes[0] for outcome in outcomes)
    outcome, seen, now = outcomes[0]
    assert outcome.status is not None or outcome.error == "ConnectError", "no invented response"
    assert len(seen) <= 1 + min(retries.most, retries.floor + 1)
    assert timeout is None or now <= timeout
