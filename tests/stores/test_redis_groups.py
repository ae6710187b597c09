"""Groups in the script, which pass as a whole or not at all, against `MemoryStore.hit_each`."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

import penstock
from penstock import Limit
from penstock.algorithms.words import NO_MARK
from penstock.durations import DAY, MICROSECOND, SECOND
from penstock.stores.redis import script as redis_script
from penstock.stores.redis import wire
from penstock.stores.redis.operation import ATTEMPT, CHARGE, HIT, PEEK, REFUND
from penstock.stores.redis.wire import REFRESH, SPARED
from penstock.testing import FakeClock
from stores.redis_twins import (
    CASES,
    IN_FLIGHT,
    START,
    Ask,
    Operation,
    Script,
    Server,
    expected_of,
    fields,
    redis,
    some_limits,
)


def group(asks: list[Ask]) -> list[Ask]:
    return [replace(ask, size=0 if at else len(asks)) for at, ask in enumerate(asks)]


# Against the reference ------------------------------------------------------------


class Game:
    """Some limits with a few keys each, in a `MemoryStore`; calls that ask for all sorts."""

    def __init__(
        self, server: Server, chance: random.Random, limits: list[Limit], keys: int, forwards: bool
    ) -> None:
        self.chance, self.forwards = chance, forwards
        self.clock = FakeClock(START)
        self.store = penstock.MemoryStore(clock=self.clock)
        self.pairs = [(limit, server.key()) for limit in limits for _ in range(keys)]
        for limit in limits:
            self.store.counters(limit)  # in force from now on
        self.marks = dict.fromkeys(self.pairs, (NO_MARK, 0))

    def call(self) -> tuple[list[Ask], list[Any]]:
        """Requests of one moment, groups and others mixed, then a look at every key."""
        now = self._later()
        asks: list[Ask] = []
        expected: list[Any] = []
        for _ in range(self.chance.choice([1, 1, 2, 3])):
            if self.chance.random() < 0.7:
                count = self.chance.randint(2, min(4, len(self.pairs)))
                verb = self.chance.choice([HIT, HIT, ATTEMPT])
                several = [
                    Ask(now, key, limit, verb, self._cost(limit))
                    for limit, key in self.chance.sample(self.pairs, count)
                ]
                asks += group(several)
                expected += self._hit_each(several)
            else:
                asks.append(self._single(now))
                expected.append(self._answer(asks[-1]))
        for limit, key in self.pairs:
            asks.append(Ask(now, key, limit, PEEK))
            expected.append(self._answer(asks[-1]))
        return asks, expected

    def _later(self) -> int:
        limit = self.chance.choice(self.pairs)[0]
        lengths = [0, limit.interval_ns, limit.period_ns, 3 * limit.period_ns, limit.lockout_ns]
        longest = self.chance.choice(lengths)
        step = self.chance.randint(0, min(longest, 100 * DAY))
        if not self.forwards and self.chance.random() < 0.1:
            step = -step
        self.clock.set((self.clock.now() + step) // MICROSECOND * MICROSECOND)
        return self.clock.now()

    def _cost(self, limit: Limit) -> int:
        most = limit.burst + limit.debt
        return self.chance.choices([1, 2, limit.burst, most + 9], [40, 5, 1, 1])[0]

    def _single(self, now: int) -> Ask:
        limit, key = self.chance.choice(self.pairs)
        verb = self.chance.choice([HIT, HIT, CHARGE, REFUND])
        mark, kept = self.marks[limit, key] if verb == REFUND else (NO_MARK, 0)
        return Ask(now, key, limit, verb, self.chance.choice([1, 1, 3]), mark, kept)

    def _answer(self, ask: Ask) -> Any:
        counters = self.store.counters(ask.limit)
        if ask.verb == CHARGE:
            return counters.charge(ask.key, ask.cost)
        if ask.verb == REFUND:
            return counters.refund(ask.key, ask.cost, ask.mark, ask.kept)
        if ask.verb == PEEK:
            return expected_of(counters.peek(ask.key, ask.cost))
        found = counters.hit(ask.key, ask.cost)
        if found:
            self.marks[ask.limit, ask.key] = found._mark, self.chance.randint(0, ask.cost)
        return expected_of(found)

    def _hit_each(self, asks: list[Ask]) -> list[Any]:
        wanted = [(self.store.counters(ask.limit), ask.key, ask.cost) for ask in asks]
        attempt = asks[0].verb == ATTEMPT
        return [expected_of(one) for one in self.store.hit_each(wanted, attempt)]


def play(server: Server, games: list[Game], calls: int, keep: bool) -> list[bool]:
    """Whether each of the groups passed."""
    script, told = Script(server.sha[True], keep=keep), []
    for game in games:
        told += [game.call() for _ in range(calls)]
    passed: list[bool] = []
    for start in range(0, len(told), IN_FLIGHT):
        some = told[start : start + IN_FLIGHT]
        with server.client.pipeline(transaction=False) as pipe:
            sent = [script.send(pipe, asks)[1] for asks, _ in some]
            replies = pipe.execute()
        for reply, operations, (asks, expected) in zip(replies, sent, some, strict=True):
            now, answers = wire.decode(reply, operations)
            found = [fields(answer) for answer in answers]
            if found != expected or now != asks[0].now:
                pairs = enumerate(zip(found, expected, strict=True))
                at = next(at for at, (ours, theirs) in pairs if ours != theirs)
                lines = "\n".join(str(ask) for ask in asks)
                pytest.fail(f"{lines}\nanswer {at}\nLua    {found[at]}\nPython {expected[at]}")
            for first, operation in enumerate(operations):
                if operation.size > 1:
                    members = found[first : first + operation.size]
                    passed.append(all(one["allowed"] for one in members))
    return passed


@pytest.mark.parametrize("seed", range(4))
def test_groups_equal_hit_each_of_the_memory_store(server: Server, seed: int) -> None:
    chance = random.Random(seed)
    every = [limit for case in CASES for limit in some_limits(chance, *case)]
    games = [
        Game(server, chance, chance.sample(every, chance.randint(2, 4)), 1, forwards=False)
        for _ in range(60)
    ]
    passed = play(server, games, 40, keep=True)
    assert len(passed) > 2_000
    assert len(passed) / 5 < sum(passed) < len(passed) * 4 / 5, "it should go both ways"


def test_groups_with_several_keys_of_a_limit(server: Server) -> None:
    """Forwards only: else it would matter when a table forgets rows that have run out."""
    chance = random.Random(9)
    every = [limit for case in CASES for limit in some_limits(chance, *case)]
    games = [Game(server, chance, chance.sample(every, 2), 3, forwards=True) for _ in range(60)]
    play(server, games, 40, keep=False)


# What prevents a group ------------------------------------------------------------

LIMITS = [Limit.parse(text) for text in ("5/hour", "5/hour fixed_window", "5/hour lockout 2h")]


def values(server: Server, keys: list[str]) -> list[tuple[Any, int]]:
    return [(server.client.get(key), server.client.pttl(key)) for key in keys]


def taken(server: Server, count: int, limits: list[Limit] = LIMITS) -> tuple[list[str], list[Ask]]:
    """A group of which each member has taken so many."""
    keys = [server.key() for _ in limits]
    asks = group([Ask(START, key, limit, HIT) for key, limit in zip(keys, limits, strict=True)])
    for _ in range(count):
        Script(server.sha[True]).call(server.client, asks)
    return keys, asks


@pytest.mark.parametrize("bad", range(3))
def test_a_member_with_a_foreign_value_spares_the_others(server: Server, bad: int) -> None:
    keys, asks = taken(server, 1)
    server.client.delete(keys[bad])
    server.client.rpush(keys[bad], "a list")
    others = [key for at, key in enumerate(keys) if at != bad]
    before = [server.client.get(key) for key in others]
    answers = Script(server.sha[True]).call(server.client, asks)
    assert isinstance(answers.pop(bad), redis.ResponseError)
    assert answers == [SPARED, SPARED]
    assert [server.client.get(key) for key in others] == before


def test_a_refusal_beside_a_foreign_value_is_not_noted(server: Server) -> None:
    locked, foreign = server.key(), server.key()
    limit = Limit.parse("1/hour lockout 2h")
    Script(server.sha[True]).call(server.client, [Ask(START, locked, limit, HIT)])
    before = server.client.get(locked)
    server.client.set(foreign, "somebody else's")
    asks = group([Ask(START, locked, limit, HIT), Ask(START, foreign, limit, HIT)])
    first, second = Script(server.sha[True]).call(server.client, asks)
    assert first is SPARED
    assert isinstance(second, redis.ResponseError)
    assert server.client.get(locked) == before


def test_a_refusal_takes_nothing_but_is_noted(server: Server) -> None:
    keys, asks = taken(server, 4)
    for key, limit in zip(keys[1:], LIMITS[1:], strict=True):
        Script(server.sha[True]).call(server.client, [Ask(START, key, limit, HIT)])
    before = [server.client.get(key) for key in keys]
    first, window, locked = Script(server.sha[True]).call(server.client, asks)
    assert first["allowed"]
    assert first["remaining"] == 1, "as it was"
    assert not window["allowed"]
    assert not locked["allowed"]
    assert locked["retry_after"] == 7200.0
    after = [server.client.get(key) for key in keys]
    assert after[:2] == before[:2]
    assert after[2] != before[2]


def test_a_calendar_that_does_not_reach_refreshes_the_whole_group(server: Server) -> None:
    keys = [server.key() for _ in range(3)]
    daily = Limit.parse("5/day fixed_window tz UTC")
    policies = [redis_script.policy(limit, START) for limit in (LIMITS[0], daily)]
    operations = [
        Operation(keys[0].encode(), policies[0], size=2),
        Operation(keys[1].encode(), policies[1], size=0),
        Operation(keys[2].encode(), policies[0]),
    ]
    later = START + 9 * DAY
    clock = (later // SECOND, later % SECOND // MICROSECOND, 0, 1)
    reply = server.client.evalsha(server.sha[True], *wire.encode(operations, 0), *clock)
    _, answers = wire.decode(reply, operations)
    assert answers[:2] == [REFRESH, REFRESH]
    assert fields(answers[2])["allowed"]
    assert [server.client.exists(key) for key in keys] == [0, 0, 1]


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("fails", range(3))
def test_a_write_that_fails_takes_the_others_back(server: Server, count: int, fails: int) -> None:
    """As when memory runs out midway: a script in which the write of one key fails."""
    keys, asks = taken(server, count)
    text = redis_script.script(test_clock=True)
    spoilt = text.replace(
        "local done = pcall('SET',",
        f"if key == '{keys[fails]}' then return {{err = 'OOM none left'}} end\n"
        "  local done = pcall('SET',",
    )
    assert spoilt != text
    before = values(server, keys)
    answers = Script(server.client.script_load(spoilt)).call(server.client, asks)
    assert "none left" in str(answers.pop(fails))
    assert answers == [SPARED, SPARED]
    for (value, left), (old_value, old_left) in zip(values(server, keys), before, strict=True):
        assert value == old_value
        assert abs(left - old_left) < 10_000
