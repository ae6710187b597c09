"""What goes over the wire: few arguments, each policy once; and no reply can do harm."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Decision, Limit
from penstock.durations import MICROSECOND, SECOND
from penstock.stores.redis import script as redis_script
from penstock.stores.redis import wire
from penstock.stores.redis.operation import CHARGE, HIT, PEEK, REFUND, RESET
from penstock.stores.redis.wire import LATE, REFRESH, SPARED
from penstock.testing import StoreConformance
from stores.redis_twins import START, Ask, Operation, Script, Server, fields

BUCKET, WINDOW, LOCKED = (
    redis_script.policy(Limit.parse(text), START, START)
    for text in ("5/minute", "5/minute fixed_window", "5/minute leaky_bucket lockout 1h")
)
NOW = START // MICROSECOND


# What is sent -----------------------------------------------------------------------


def test_a_plain_hit_takes_its_key_and_one_argument() -> None:
    keys = [b"key%d" % at for at in range(32)]
    told = wire.encode([Operation(key, BUCKET) for key in keys], 99)
    assert told == [32, *keys, 99, 4, BUCKET.text, *[b"3"] * 32]


def test_each_policy_is_sent_once() -> None:
    several = [WINDOW, BUCKET, WINDOW, WINDOW, BUCKET]
    told = wire.encode([Operation(b"k", policy) for policy in several], 0)
    assert told[6:] == [0, 5, WINDOW.text, BUCKET.text, b"3", b"4", b"3", b"3", b"4"]


def test_other_operations_say_what_they_are() -> None:
    told = wire.encode(
        [
            Operation(b"a", BUCKET, HIT, 3),
            Operation(b"b", BUCKET, PEEK),
            Operation(b"c", BUCKET, CHARGE, 10**30),
            Operation(b"d", BUCKET, REFUND, 2, START, 1),
            Operation(b"e", BUCKET, REFUND),
            Operation(b"f", BUCKET, RESET),
            Operation(b"g", BUCKET, size=2),
            Operation(b"h", BUCKET, HIT, 2, size=0),
        ],
        0,
    )
    assert told[1 + 8 + 3 :] == [
        "hit", b"3", 3, "peek", b"3", 1, "charge", b"3", 2**53,
        "refund", b"3", 2, 1_704_067_200, 123_456_000, 1, "refund", b"3", 1, -1, 0, 0,
        "reset", "all", 2, b"3", "hit", b"3", 2,
    ]  # fmt: skip


def test_nothing_may_be_asked() -> None:
    assert wire.encode([], 0) == [0, 0, 3]
    assert wire.decode([NOW], []) == (START, [])


# The deadline -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deadline", "late"), [(0, False), (1, True), (NOW - 1, True), (NOW, False), (NOW + 1, False)]
)
def test_after_its_deadline_a_call_does_nothing(server: Server, deadline: int, late: bool) -> None:
    keys = [server.key() for _ in range(3)]
    limit, verbs = Limit.parse("5/minute"), (HIT, CHARGE, RESET)
    asks = [Ask(START, key, limit, verb) for key, verb in zip(keys, verbs, strict=True)]
    server.client.set(keys[2], "to be reset")
    answers = Script(server.sha[True]).call(server.client, asks, deadline)
    assert (answers == [LATE] * 3) == late
    assert [server.client.exists(key) for key in keys] == ([0, 0, 1] if late else [1, 1, 0])


def test_the_deadline_is_by_the_clock_of_the_server(server: Server) -> None:
    now = time.time_ns()
    operations = [Operation(server.key().encode(), redis_script.policy(Limit.parse("5/hour"), now))]
    for deadline, late in [(now - SECOND, True), (now + 60 * SECOND, False)]:
        told = wire.encode(operations, deadline // MICROSECOND)
        moment, [answer] = wire.decode(server.client.evalsha(server.sha[False], *told), operations)
        assert (answer is LATE) == late
        assert abs(moment - now) < 60 * SECOND


# What comes back --------------------------------------------------------------------


@pytest.mark.parametrize("text", [*StoreConformance.limits, "5/minute warm_up 1h"])
def test_looks_and_hits_of_any_kind_are_decisions(server: Server, text: str) -> None:
    key, limit = server.key(), Limit.parse(text)
    for verb, cost in [(PEEK, 1), (HIT, 2), (HIT, 3), (PEEK, 1), (HIT, 9), (HIT, 1), (PEEK, 99)]:
        operations = [Operation(key.encode(), redis_script.policy(limit, START, START), verb, cost)]
        told = wire.encode(operations, 0)
        clock = (START // SECOND, START % SECOND // MICROSECOND, 1000, 1)
        _, [answer] = wire.decode(
            server.client.evalsha(server.sha[True], *told, *clock), operations
        )
        assert type(answer) is Decision
        assert answer.limit == limit


REQUESTS = [
    Operation(b"a", BUCKET),
    Operation(b"b", WINDOW, HIT, 2),
    Operation(b"c", BUCKET, CHARGE),
    Operation(b"d", LOCKED, PEEK, 1),
]
GOOD = [NOW, 7, [1, 2, 3, 4], 1, [0, 5, 6, 7, 8]]


def test_a_reply_is_read_by_what_was_asked() -> None:
    now, answers = wire.decode(GOOD, REQUESTS)
    assert now == START
    first, second, third, fourth = (fields(answer) for answer in answers)
    assert (first["allowed"], first["room"], first["mark"]) == (True, 48 * SECOND - 7, START + 7)
    assert (second["allowed"], second["room"], second["mark"]) == (True, 2, START + 4)
    assert third is None
    assert (fourth["allowed"], fourth["room"], fourth["retry"]) == (False, 5, 1000)
    assert fourth["unit"] == 12 * SECOND
    wrong = OSError("wrong")
    _, answers = wire.decode([NOW, b"refresh", b"spared", wrong, [3, 2, 3, 4, 0, 9, 6]], REQUESTS)
    assert answers[:3] == [REFRESH, SPARED, wrong]
    last = fields(answers[3])
    assert (last["overrun"], last["delay"], last["unit"]) == (True, 9, 6)


RUBBISH: list[Any] = [
    None, b"OK", 1, 1.5, [], {}, [None], [b"1"] * 5, GOOD[:-1], [*GOOD, 1], [[NOW], *GOOD[1:]],
    [b"x" * 9, *GOOD[1:]],
    *([*GOOD[:at], found, *GOOD[at + 1 :]]
      for at in (1, 2, 3, 4)
      for found in (None, b"", b"1", "spared", 1.5, {}, [], [1], [1, 2, 3], [1, 2, 3, 4, 5, 6],
                    [1, 2, 3, 4, 0, 0, 0], [1, 2, 3, 4, 0, 0, -1], [1, 2, 3, None], [b"1"] * 4,
                    [1, 2, 3.5, 4], ["1"] * 4, [[1]] * 4, [1] * 8, 2**62 if at == 3 else None)),
]  # fmt: skip


@pytest.mark.parametrize("reply", RUBBISH, ids=lambda reply: f"{reply!r:.60}")
def test_rubbish_is_a_value_error(reply: Any) -> None:
    with pytest.raises(ValueError, match="not a reply of the script"):
        wire.decode(reply, REQUESTS)


words = st.one_of(
    st.integers(-9, 9),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([None, b"", b"1", 0.5]),
)
items = st.one_of(
    words,
    st.lists(words, max_size=8),
    st.sampled_from([b"refresh", b"spared", OSError()]),
)


@given(st.one_of(words, st.lists(items, max_size=6), st.lists(items, min_size=5, max_size=5)))
def test_whatever_comes_back_is_an_answer_or_a_value_error(reply: Any) -> None:
    with contextlib.suppress(ValueError):
        now, answers = wire.decode(reply, REQUESTS)
        assert type(now) is int
        for answer in answers:
            if isinstance(answer, Decision):
                repr(answer)
                assert type(answer._mark) is int
            else:
                assert answer is None or isinstance(answer, wire.NoDecision | Exception)
