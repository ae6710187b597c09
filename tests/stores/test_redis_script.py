"""The Redis script: what it leaves behind, how it goes by time, what it refuses."""

from __future__ import annotations

import math
import random
import re
import struct
import time
from typing import Any

import pytest

from penstock import Limit, UnsupportedLimit
from penstock.durations import DAY, MICROSECOND, MILLISECOND, SECOND
from penstock.stores.redis import script as redis_script
from penstock.stores.redis import wire
from penstock.stores.redis.operation import CHARGE, HIT, PEEK, REFUND, RESET
from penstock.stores.redis.wire import REFRESH
from penstock.testing import StoreConformance
from stores.redis_twins import (
    LINGER,
    START,
    Ask,
    Operation,
    Script,
    Server,
    fields,
    in_redis,
    operations_of,
    redis,
)

# What is left behind ------------------------------------------------------------


def row_of(value: bytes) -> tuple[str, int, list[float]]:
    """Its rule's letter, its second, its words."""
    count = (len(value) - 9) // 8
    letter, second, *words = struct.unpack(f"<cd{count}d", value)
    return letter.decode(), int(second), words


def end_of(value: bytes) -> int:
    """When a row ends, in nanoseconds since 1970."""
    _, second, words = row_of(value)
    return second * SECOND + int(words[0])


@pytest.mark.parametrize("text", StoreConformance.limits)
@pytest.mark.parametrize("moment", [START, START + 999 * MICROSECOND, START + 876_543_999_000])
def test_expiry_is_always_set_and_rounded_up(server: Server, text: str, moment: int) -> None:
    limit, key, before = Limit.parse(text), server.key(), b""
    for step, verb in enumerate([HIT, HIT, CHARGE, REFUND, HIT]):
        now = moment + step * 1_234_567 * MICROSECOND
        with server.client.pipeline(transaction=True) as pipe:
            Script(server.sha[True], 0, False).send(pipe, [Ask(now, key, limit, verb, 2)])
            pipe.get(key)
            pipe.pttl(key)
            _, value, left = pipe.execute()
        rest = end_of(value) - now
        assert rest > 0
        assert rest <= left * MILLISECOND
        if value != before:  # a refused hit writes nothing: then the time told has gone on
            assert left * MILLISECOND <= rest + 3 * MILLISECOND
        before = value


@pytest.mark.parametrize("text", StoreConformance.limits)
def test_words_are_whole(server: Server, text: str) -> None:
    limit, key = Limit.parse(text), server.key()
    for step in range(8):
        Script(server.sha[True]).call(server.client, [Ask(START + step * SECOND, key, limit, HIT)])
        _, second, words = row_of(server.client.get(key))
        assert second == START // SECOND + step or step >= 5
        assert all(word == -math.inf or word.is_integer() for word in words)


NO = -math.inf
TIME = 1_704_067_200_123_456  # START, in microseconds


@pytest.mark.parametrize(
    ("text", "letter", "words"),
    [
        ("5/minute", "B", [24_123_456_000]),
        ("5/minute fixed_window", "F", [60_000_000_000, 2]),
        ("5/minute sliding_window cells 2", "W", [90_123_456_000, 2, 1, 2, 0, 0]),
        ("5/minute sliding_window cells 2 rounding up", "W", [90_123_456_000, 2, 1, 2, 0, 0]),
        ("5/minute sliding_log", "H", [60_123_456_000, 2, 0, TIME, 2]),
        ("5/minute lockout 1m", "L", [24_123_456_000, NO, 24_123_456_000]),
        ("5/minute soft 1 for 1m", "S", [24_123_456_000, NO, NO, 24_123_456_000]),
        ("1/minute soft 1 for 1m", "S", [120_123_456_000, 60_123_456_000] + 2 * [120_123_456_000]),
    ],
)
def test_what_a_value_looks_like(
    server: Server, text: str, letter: str, words: list[float]
) -> None:
    key = server.key()
    Script(server.sha[True]).call(server.client, [Ask(START, key, Limit.parse(text), HIT, 2)])
    assert row_of(server.client.get(key)) == (letter, 1_704_067_200, words)


def test_a_value_can_be_looked_at_as_base_lua_says(server: Server) -> None:
    key, limit = server.key(), Limit.parse("5/minute")
    Script(server.sha[True]).call(server.client, [Ask(START, key, limit, HIT, 2)])
    text = redis_script.script()
    command = re.search(r'EVAL "(.*?)" 1 key', text, re.S)
    assert command is not None
    look = command[1].replace("\n--", "\n")
    assert server.client.eval(look, 1, key) == b"1704067200 s + 24123456000 ns"


def live(server: Server, asks: list[tuple[str, str, Any, int]]) -> list[Any]:
    """The script of production, by the server's own time."""
    now = time.time_ns()
    operations = operations_of(
        [Ask(now, key, Limit.parse(text), verb, cost) for key, text, verb, cost in asks], now, now
    )
    reply = server.client.evalsha(server.sha[False], *wire.encode(operations, 0))
    moment, answers = wire.decode(reply, operations)
    assert abs(moment - now) < 5 * SECOND
    return [fields(answer) for answer in answers]


SHORT = [
    text.replace("minute", "40ms")
    .replace("15m", "30ms")
    .replace("10m", "20ms")
    .replace("1h", "9ms")
    for text in StoreConformance.limits
    if "tz" not in text
]


def test_idle_keys_vanish(server: Server) -> None:
    keys = [server.key() for _ in SHORT]
    for _ in range(7):
        live(server, [(key, text, HIT, 1) for key, text in zip(keys, SHORT, strict=True)])
    assert server.client.exists(*keys) > 0
    time.sleep(0.25)  # the server's own clock lets them expire
    assert server.client.exists(*keys) == 0


@pytest.mark.parametrize("text", ["5/hour", "5/hour sliding_log", "5/hour lockout 1m"])
def test_what_was_given_back_leaves_nothing(server: Server, text: str) -> None:
    key = server.key()
    live(server, [(key, text, HIT, 3)])
    assert server.client.exists(key) == 1
    live(server, [(key, text, REFUND, 3)])
    assert server.client.exists(key) == 0


def test_a_look_and_a_refund_of_nothing_write_nothing(server: Server) -> None:
    for text in StoreConformance.limits:
        key = server.key()
        live(server, [(key, text, PEEK, 1), (key, text, REFUND, 1), (key, text, HIT, 99)])
        assert server.client.exists(key) == 0


def test_production_goes_by_the_time_of_the_server(server: Server) -> None:
    for text in StoreConformance.limits:
        key = server.key()
        found = [live(server, [(key, text, HIT, 1)])[0] for _ in range(9)]
        limit = Limit.parse(text)
        fit = limit.burst + (limit.soft.overrun if limit.soft else 0)
        assert [answer["allowed"] for answer in found] == [True] * fit + [False] * (9 - fit)
        assert [answer["remaining"] for answer in found[:5]][:3] == [
            limit.burst - 1, limit.burst - 2, limit.burst - 3,
        ]  # fmt: skip
        assert live(server, [(key, text, RESET, 1)]) == [None]
        assert server.client.exists(key) == 0


def test_production_knows_no_other_time() -> None:
    ours, tests = redis_script.script(), redis_script.script(test_clock=True)
    assert "redis.call('TIME')" in ours
    assert "#ARGV" not in ours
    assert "redis.call('TIME')" not in tests
    assert ours.split("-- Twin of base.py")[1] == tests.split("-- Twin of base.py")[1]


# Batches ------------------------------------------------------------------------


def test_a_batch_with_duplicate_keys_equals_single_calls(server: Server) -> None:
    chance, now = random.Random(3), START
    names = {text: [server.key() for _ in range(4)] for text in StoreConformance.limits}
    for _ in range(60):
        now += chance.randint(0, 20_000_000) * MICROSECOND
        pairs = chance.sample([(text, at) for text in names for at in range(2)], 8)
        batch, single = [], []
        for _ in range(32):
            text, at = chance.choice(pairs)
            verb = chance.choices([HIT, PEEK, CHARGE, REFUND, RESET], [20, 4, 2, 4, 1])[0]
            cost = chance.choice([1, 1, 2, 9])
            limit = Limit.parse(text)
            batch.append(Ask(now, names[text][at], limit, verb, cost))
            single.append(Ask(now, names[text][at + 2], limit, verb, cost))
        assert len({ask.key for ask in batch}) <= 8
        assert Script(server.sha[True]).call(server.client, batch) == in_redis(server, single)
        values = [server.client.mget(keys) for keys in names.values()]
        assert all(found[:2] == found[2:] for found in values)


def test_each_decision_has_its_own_error(server: Server) -> None:
    good, text, list_ = (server.key() for _ in range(3))
    server.client.set(text, "somebody else's!!")
    server.client.rpush(list_, 1)
    found = live(server, [(key, "5/hour", HIT, 1) for key in (good, text, list_, good)])
    assert [found[at]["remaining"] for at in (0, 3)] == [4, 3]
    assert [type(found[at]) for at in (1, 2)] == [redis.ResponseError] * 2
    assert "not a row of token_bucket" in str(found[1])
    assert "WRONGTYPE" in str(found[2])
    assert server.client.get(text) == b"somebody else's!!"


@pytest.mark.parametrize(
    ("text", "letter", "words"),
    [
        ("5/hour", b"", []),
        ("5/hour", b"B", []),
        ("5/hour", b"B", [START // SECOND]),
        ("5/hour", b"B", [START // SECOND, 1, 1]),
        ("5/hour", b"F", [START // SECOND, 1]),
        ("5/hour fixed_window", b"F", [START // SECOND, 1]),
        ("5/hour fixed_window soft 1 for 1m", b"W", [START // SECOND, 1, 1, 1, 1, 1]),
        ("5/hour sliding_window cells 1", b"W", [START // SECOND, 1, 1, 1, 1]),
        ("5/hour sliding_log", b"H", [START // SECOND, 1, 1]),
        ("5/hour sliding_log", b"H", [START // SECOND, 1, 1, 0, 5]),
        ("5/hour lockout 1m", b"L", [START // SECOND, 1]),
        ("5/hour lockout 1m", b"L", [START // SECOND, 1, 1, 1, 1]),
        ("5/hour soft 1 for 1m", b"S", [START // SECOND, 1, 1]),
        ("5/hour soft 1 for 1m", b"S", [START // SECOND, 1, 1, 1]),
    ],
)
def test_what_is_not_a_row_is_an_error_and_left_alone(
    server: Server, text: str, letter: bytes, words: list[float]
) -> None:
    key, value = server.key(), letter + struct.pack(f"<{len(words)}d", *words)
    server.client.set(key, value)
    for verb in (HIT, PEEK, CHARGE, REFUND):
        [found] = live(server, [(key, text, verb, 1)])
        assert "not a row of" in str(found)
    assert server.client.get(key) == value


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("text", "letter", "words"),
    [
        ("5/hour", b"B", [START // SECOND, NAN]),
        ("5/hour", b"B", [NAN, 1]),
        ("5/hour", b"B", [START // SECOND, INF]),
        ("5/hour fixed_window", b"F", [START // SECOND, 9e18, -3]),
        ("5/hour fixed_window", b"F", [START // SECOND, 1, NAN]),
        ("5/hour sliding_window cells 1", b"W", [START // SECOND, 1, 1, 0, 1, 1]),
        ("5/hour sliding_window cells 1", b"W", [START // SECOND, 1, 1, 3, 1, 1]),
        ("5/hour sliding_window cells 1", b"W", [START // SECOND, 1, 1, 1, 1, -1]),
        ("5/hour sliding_window cells 1", b"W", [START // SECOND, 1, 7, 1, 1, 1]),
        ("5/hour sliding_log", b"H", [START // SECOND, 1, NAN, 0]),
        ("5/hour sliding_log", b"H", [START // SECOND, 1, 1, NAN]),
        ("5/hour sliding_log", b"H", [2**33, 3.6e12, 1, 0, NAN, 1]),
        ("5/hour sliding_log", b"H", [2**33, 3.6e12, 1, 0, 2**33 * 1e6, NAN]),
        ("5/hour lockout 1m", b"L", [START // SECOND, 1, NAN, 1]),
        ("5/hour lockout 1m", b"L", [START // SECOND, 1, 1, NAN]),
        ("5/hour soft 1 for 1m", b"S", [START // SECOND, 1, 1, INF, 1]),
        ("5/hour soft 1 for 1m", b"S", [START // SECOND, 1, 9e9, 1, 1]),
    ],
)
def test_a_row_that_makes_no_sense_is_forgotten(
    server: Server, text: str, letter: bytes, words: list[float]
) -> None:
    key, value = server.key(), letter + struct.pack(f"<{len(words)}d", *words)
    for verb in (HIT, PEEK, CHARGE):
        server.client.set(key, value)
        [found] = live(server, [(key, text, verb, 1)])
        assert str(found).startswith("DAMAGED"), verb
        assert not server.client.exists(key)
        [found] = live(server, [(key, text, HIT, 1)])
        assert found["remaining"] == 4
        live(server, [(key, text, RESET, 1)])


# Policies -------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["minute", "hour", "day", "week", "month", "year"])
@pytest.mark.parametrize("tz", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
def test_a_calendar_far_from_the_clients_is_refreshed(server: Server, unit: str, tz: str) -> None:
    limit = Limit.parse(f"5/{unit} fixed_window tz {tz}")
    told = redis_script.policy(limit, START)
    names = ("before", "start", "end", "after", "last")
    before, start, end, after, last = (told.rule.numbers[name] * MICROSECOND for name in names)
    assert before < start <= START < end < after < last
    for moment, finish in [
        (before - MICROSECOND, None), (before, start), (start - MICROSECOND, start),
        (start, end), (end - MICROSECOND, end), (end, after), (after - MICROSECOND, after),
        (after, None), (after + 900 * DAY, None),
    ]:  # fmt: skip
        key = server.key()
        clock = (moment // SECOND, moment % SECOND // MICROSECOND, LINGER, 1)
        for verb in (PEEK, CHARGE, REFUND, HIT):
            operations = [Operation(key.encode(), told, verb)]
            reply = server.client.evalsha(server.sha[True], *wire.encode(operations, 0), *clock)
            found, [answer] = wire.decode(reply, operations)
            assert found == moment
            assert (answer is REFRESH) == (finish is None)
        if finish is None:
            assert server.client.exists(key) == 0
        else:
            assert fields(answer)["mark"] == finish
            assert fields(answer)["reset_after"] == (finish - moment) / 1e9


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("5/1500ns fixed_window", "whole microseconds"),
        ("5/3y fixed_window align first_hit", "its period is longer than 416d"),
        ("5/3y sliding_log", "its period is longer"),
        ("5/3y sliding_window", "its period is too long"),
        ("5/3y", "to fill is too large"),
        ("5/minute lockout 2y", "its lockout is longer"),
        ("5/minute soft 2 for 2y", "its grace time is longer"),
        ("5/minute warm_up 60d", "a warm_up may take 52 days"),
    ],
)
def test_what_cannot_be_exact_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedLimit, match=reason) as error:
        redis_script.policy(Limit.parse(text), START)
    assert str(error.value).startswith(str(Limit.parse(text)))


@pytest.mark.parametrize("text", ["2001/hour sliding_log", "2000/hour sliding_log soft 1 for 1m"])
def test_a_log_that_would_block_the_server_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedLimit, match=r"at most 2000; algorithm='sliding_window'"):
        redis_script.policy(Limit.parse(text), START)


@pytest.mark.parametrize(
    "text",
    [
        "1000/year", "1000/year fixed_window", "1000/year fixed_window tz Asia/Taipei",
        "1000/year sliding_window", "1000/year sliding_log", "1000000/second lockout 1y",
        "1000000000000/minute fixed_window", "1000000000/minute sliding_window cells 1000",
        "2000/hour sliding_log", "1990/hour sliding_log soft 10 for 1m",
    ],
)  # fmt: skip
def test_what_people_write_is_supported(text: str) -> None:
    redis_script.policy(Limit.parse(text), START)
