"""The bank in Redis and its model in Python answer alike, step by step."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from penstock import Limit
from penstock.durations import MICROSECOND, MILLISECOND, SECOND
from penstock.stores.leased import law, wire
from penstock.stores.leased.bank import Bank
from penstock.stores.leased.messages import Message
from penstock.stores.redis import script as redis_script
from penstock.stores.redis import wire as redis_wire
from stores.redis_twins import LINGER, START, Ask, Script, Server

STEPS = 2_000
LIMITS = [
    "100/second", "1000/second burst 100", "20/second burst 16", "50/minute burst 400",
    "1000000/second", "200/second fixed_window", "40/100ms fixed_window",
    "60/second fixed_window align first_hit", "100/minute fixed_window tz Europe/Berlin",
    "100/hour fixed_window tz Asia/Kolkata", "100/month fixed_window tz UTC",
    "100/second leaky_bucket", "30/minute burst 200 leaky_bucket",
]  # fmt: skip
_numbers = itertools.count()


class Steps:
    """Random messages and direct hits for one key."""

    def __init__(self, limit: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.limit = Limit.parse(limit)
        terms = law.terms_of(self.limit)
        assert terms is not None
        self.terms = terms
        # Those of instances with other options, or with so many keys that leases are stretched.
        others = [
            law.stretched(self.limit, law.HORIZON, None, factor, share)
            for factor, share in [(2, 0.5), (16, 0.05), (1, 1.0)]
        ]
        self.kinds = [terms, terms, *(each for each in others if each is not None)]
        self.now = START
        # Of each holder: granted, spent, returned.
        self.held: dict[bytes, tuple[int, int, int]] = {}
        self.sent: list[Message] = []
        self.disowned = 0

    def next(self) -> tuple[int, Message | int]:
        """When, and a message or the cost of a direct hit."""
        chance, horizon = self.chance, self.terms.horizon
        step = chance.choice([0, horizon // 10, horizon, 2 * horizon, 3 * horizon])
        if chance.random() < 0.02:
            step = 2 * max(self.terms.ttl, self.limit.period_ns)
        self.now += chance.randint(0, step) // MICROSECOND * MICROSECOND
        if chance.random() < 0.25:
            return self.now, chance.choice([1, 1, 5, self.limit.burst // 3])
        if self.sent and chance.random() < 0.15:
            return self.now, chance.choice(self.sent[-20:])
        holder = b"holder-%d.%d" % (chance.randint(1, 5), self.disowned)
        granted, spent, returned = self.held.get(holder, (0, 0, 0))
        if chance.random() < 0.03:  # claims what it never got
            granted += chance.choice([3, self.limit.burst // 4, 3 * self.limit.burst])
        spent += chance.randint(0, granted - spent - returned)
        returned += chance.choice([0, 0, granted - spent - returned])
        want = chance.choice([0, 1, 7, self.limit.burst // 4, 4 * self.limit.burst])
        message = Message(holder, granted, spent, returned, chance.randint(0, 10**4), want)
        self.sent.append(message)
        self.held[holder] = granted, spent, returned
        return self.now, message

    def granted(self, holder: bytes, granted: int) -> None:
        before, spent, returned = self.held[holder]
        if granted < before:  # disowned: all begin anew, under other names
            self.disowned += 1
        else:
            self.held[holder] = granted, spent, returned


@pytest.fixture(scope="module")
def sha(server: Server) -> str:
    name: str = server.client.script_load(wire.bank_script(test_clock=True))
    return name


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_lua_bank_and_its_model_answer_alike(
    server: Server, sha: str, limit: str, seed: int
) -> None:
    steps = Steps(limit, seed)
    bank = Bank(steps.limit, steps.terms)
    key = f"{server.prefix}:bank{next(_numbers)}".encode()
    expected: list[Any] = []
    moments: list[int] = []
    direct = Script(server.sha[True])
    with server.client.pipeline(transaction=False) as pipe:
        for _ in range(STEPS):
            now, what = steps.next()
            moments.append(now)
            if isinstance(what, int):
                expected.append(bank.hit(what, now))
                direct.send(pipe, [Ask(now, key.decode(), steps.limit, redis_wire.HIT, what)])
                continue
            terms = steps.chance.choice(steps.kinds)
            reply = bank.call(what, now, terms)
            steps.granted(what.holder, reply.granted)
            expected.append(reply)
            policy = redis_script.policy(steps.limit, now)
            arguments = wire.encode([wire.parcel("p", key, policy, terms, what)])
            clock = (now // SECOND, now % SECOND // MICROSECOND, LINGER, 1)
            pipe.evalsha(sha, *arguments, *clock)
        answers = pipe.execute()
    for at, (raw, wanted) in enumerate(zip(answers, expected, strict=True)):
        if isinstance(wanted, bool):
            answer: Any = allowed(raw[1])
        else:
            answer = wire.decode(raw)[0]
        assert answer == wanted, f"step {at} at {moments[at] - START}"


def allowed(answer: Any) -> bool:
    """Of a plain bucket, or of a window."""
    return bool(answer[0] & 1) if isinstance(answer, list) else answer >= 0


def test_one_call_carries_many_keys(server: Server, sha: str) -> None:
    limits = [Limit.parse("100/second"), Limit.parse("200/second fixed_window")]
    parcels = []
    for number in range(40):
        limit = limits[number % 2]
        terms = law.terms_of(limit)
        assert terms is not None
        key = f"{server.prefix}:many{next(_numbers)}".encode()
        message = Message(b"me", 0, 0, 0, 100, number + 1)
        policy = redis_script.policy(limit, START)
        parcels.append(wire.parcel("p", key, policy, terms, message))
    clock = (START // SECOND, START % SECOND // MICROSECOND, LINGER, 1)
    replies = wire.decode(server.client.evalsha(sha, *wire.encode(parcels), *clock))
    assert [reply.granted for reply in replies] == list(range(1, 41))


def test_records_and_rows_expire_by_themselves(server: Server) -> None:
    name = server.client.script_load(wire.bank_script())
    limit = Limit.parse("100/second")
    terms = law.terms_of(limit)
    assert terms is not None
    key = f"{server.prefix}:expires{next(_numbers)}".encode()
    policy = redis_script.policy(limit, START)
    parcel = wire.parcel("p", key, policy, terms, Message(b"me", 0, 0, 0, 100, 10))
    server.client.evalsha(name, *wire.encode([parcel]))
    assert 0 < server.client.pttl(parcel.leases) <= terms.ttl // MILLISECOND + 3
    assert 0 < server.client.pttl(key) <= 1_003


def test_a_foreign_value_is_an_error_of_its_key_alone(server: Server, sha: str) -> None:
    limit = Limit.parse("100/second")
    terms = law.terms_of(limit)
    assert terms is not None
    policy = redis_script.policy(limit, START)
    parcels = []
    for _ in range(2):
        key = f"{server.prefix}:foreign{next(_numbers)}".encode()
        parcels.append(wire.parcel("p", key, policy, terms, Message(b"me", 0, 0, 0, 100, 10)))
    server.client.set(parcels[0].key, "not a row")
    clock = (START // SECOND, START % SECOND // MICROSECOND, LINGER, 1)
    replies = wire.decode(server.client.evalsha(sha, *wire.encode(parcels), *clock))
    assert isinstance(replies[0], Exception)
    assert replies[1].granted == 10
