"""The accounts in Redis and their model in Python answer alike, step by step."""

from __future__ import annotations

import random

import pytest

from penstock.limits import Limit
from penstock.service.rlqs import shares
from penstock.service.rlqs.account import (
    CONFIRM,
    LEAVE,
    LOOK,
    RELEASE,
    REPORT,
    Account,
    Reply,
    Request,
)
from penstock.service.rlqs.bank import Entry
from penstock.service.rlqs.packing import (
    bank_script,
    pack_account,
    pack_entry,
    unpack_account,
    unpack_reply,
)

redis = pytest.importorskip("redis")

START = 1_704_067_200_123
STEPS = 4_000
LINGER = 10_000_000
LIMITS = [
    ("100/second", "50/second"), ("1000000/second", "900000/second"), ("30/minute", "3000/minute"),
    ("10/second burst 3", "5/second burst 8"), ("1000/day", "20/second"), ("7/second", "7/hour"),
]  # fmt: skip


class Steps:
    """Random requests of a few streams, some of them forgotten, repeated or wrong."""

    def __init__(self, limits: tuple[str, str], seed: int) -> None:
        self.chance = random.Random(seed)
        self.terms = [shares.terms_of([Limit.parse(limit)]) for limit in limits]
        self.now = START
        self.sent: dict[str, tuple[int, int, int]] = {}  # number, burst, rate
        self.proven: dict[str, int] = {}

    def next(self) -> tuple[int, Entry]:
        chance = self.chance
        self.now += chance.choice([0, 1, 40, 600, 1_000, 2_000])
        if chance.random() < 0.02:
            self.now += chance.choice([14_000, 20_000, -5_000, 10**7])
        terms = self.terms[chance.random() < 0.05]
        holder = f"envoy-{chance.randint(1, 5)}"
        kind = chance.choice([REPORT] * 6 + [LOOK] * 3 + [CONFIRM] * 3 + [LEAVE, RELEASE])
        number, burst, rate = self.sent.get(holder, (0, 0, 0))
        if chance.random() < 0.02:
            number += chance.choice([1, 3_000])  # what the bank does not know
        stream = f"stream-{holder}-{chance.random() < 0.02}"
        requests = chance.choice([0, 1, 300, 2 * terms.rate // 20])
        proven = chance.choice([0, self.proven.get(holder, 0), number, number])
        request = Request(
            kind, holder, stream, requests, number, proven, burst, rate, chance.random() < 0.95
        )
        self.proven[holder] = max(proven, self.proven.get(holder, 0))
        return self.now, Entry("x", terms, request)


@pytest.mark.parametrize("limits", LIMITS, ids=lambda pair: pair[0])
@pytest.mark.parametrize("seed", [1, 2])
def test_lua_and_python_answer_alike(
    redis_url: str, prefix: str, limits: tuple[str, str], seed: int
) -> None:
    steps = Steps(limits, seed)
    account: Account | None = None
    expected: list[tuple[Entry, Reply, bytes]] = []
    with redis.Redis.from_url(redis_url) as client, client.pipeline(transaction=False) as pipe:
        sha = client.script_load(bank_script(test_clock=True))
        for _ in range(STEPS):
            now, entry = steps.next()
            if account is None:
                account = Account(entry.terms)
            reply = account.settle(entry.request, entry.terms, now)
            value = pack_account(account)
            assert unpack_account(value) == account
            expected.append((entry, reply, value))
            pipe.evalsha(sha, 1, prefix, pack_entry(entry), now, LINGER)
            pipe.get(prefix)
            if entry.request.kind in (REPORT, LOOK, RELEASE) and steps.chance.random() < 0.95:
                steps.sent[entry.request.holder] = reply.number, reply.burst, reply.rate
        answers = pipe.execute()
    for at, (entry, reply, value) in enumerate(expected):
        assert unpack_reply(answers[2 * at][0]) == reply, f"step {at}: {entry}"
        assert answers[2 * at + 1] == value, f"step {at}: {entry}"
    assert sum(reply.rate > 0 for _, reply, _ in expected) > STEPS / 10


def test_one_call_carries_many_accounts(redis_url: str, prefix: str) -> None:
    terms = shares.terms_of([Limit.parse("100/second")])
    entries = [Entry("", terms, Request(REPORT, "me", "s", 1)) for _ in range(40)]
    with redis.Redis.from_url(redis_url) as client:
        keys = [f"{prefix}-{number % 20}" for number in range(40)]
        raw = client.eval(bank_script(), len(keys), *keys, *map(pack_entry, entries))
        replies = [unpack_reply(each) for each in raw]
        assert [reply.burst for reply in replies] == [100] * 20 + [0] * 20
        assert [client.pttl(key) > 15_000 for key in keys] == [True] * 40


def test_a_foreign_value_is_an_error_of_its_account_alone(redis_url: str, prefix: str) -> None:
    terms = shares.terms_of([Limit.parse("100/second")])
    entries = [pack_entry(Entry("", terms, Request(REPORT, "me", "s", 1)))] * 2
    with redis.Redis.from_url(redis_url) as client:
        client.set(f"{prefix}-a", "not an account")
        bad, good = client.eval(bank_script(), 2, f"{prefix}-a", f"{prefix}-b", *entries)
        assert isinstance(bad, redis.ResponseError)
        assert unpack_reply(good).burst == 100
        assert client.get(f"{prefix}-a") == b"not an account"


@pytest.mark.parametrize("value", [b"", b"rlqs1", b"rlqs1\0" + bytes(39), b"x\0" + bytes(40)])
def test_what_is_not_an_account_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="not an account"):
        unpack_account(value)
