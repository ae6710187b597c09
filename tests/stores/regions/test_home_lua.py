"""The home in Redis and its model in Python answer alike, step by step."""

from __future__ import annotations

import random

import pytest

from penstock.limits import Limit
from penstock.stores.regions import law
from penstock.stores.regions.account import CONFIRM, REPORT, Request
from penstock.stores.regions.messages import Account, Ask, pack_hello, pack_request, unpack_answer
from penstock.stores.regions.roster import JOINED, STALE, TAKEN, TOO_MUCH
from stores.regions.world import Home

redis = pytest.importorskip("redis")
calls = pytest.importorskip("penstock.stores.regions.calls")

START = 1_704_067_200_123
STEPS = 3_000
LINGER = 10_000_000
LIMITS = [
    "100/second", "1000000/second", "30/minute", "10/second burst 3", "1000/day", "7/hour burst 70",
]  # fmt: skip


class Steps:
    """Random reports of four sites, some of them forgotten, repeated or wrong."""

    def __init__(self, limit: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.terms = law.terms_of(Limit.parse(limit))
        self.now = START
        self.has: dict[str, tuple[int, int, int]] = {}  # number, burst, rate
        self.floors = {f"r{at}": 100_000 for at in range(4)}

    def next(self) -> Ask:
        chance = self.chance
        self.now += chance.choice([0, 1, 40, 300, 600, 1_000])
        if chance.random() < 0.03:
            self.now += chance.choice([3_000, 20_000, -2_000, 10**7])
        region = f"r{chance.randrange(4)}"
        if chance.random() < 0.02:
            self.floors[region] = chance.choice([10_000, 100_000, 400_000, 900_000])
        site = f"site-{region}" if chance.random() < 0.98 else "another"
        terms = self.terms
        number, burst, rate = self.has.get(region, (0, 0, 0))
        if chance.random() < 0.03:
            number += chance.choice([1, 2_000])  # what the home does not know
        request = Request(
            chance.choice([REPORT, REPORT, REPORT, CONFIRM]),
            chance.choice([0, 1, terms.rate // 20, terms.rate // 2, 2 * terms.rate]), number,
            burst, rate, chance.choice([0, 500, 2_000]), chance.choice([0, 1, terms.burst // 3]),
        )  # fmt: skip
        floor = self.floors[region]
        granted = chance.choice([0, floor, floor])
        told = chance.choice([0, 300_000])
        fence = 5 if chance.random() < 0.98 else chance.choice([4, 5])
        account = Account(terms, b"k")
        requests = [(account, request)]
        if chance.random() < 0.1:
            requests.append((Account(terms, b"other"), request))
        return Ask(region, site, fence, floor, granted, told, requests)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("seed", [1, 2])
def test_lua_and_python_answer_alike(redis_url: str, prefix: str, limit: str, seed: int) -> None:
    times = law.times_of(3_000_000_000)
    steps, home = Steps(limit, seed), Home(times, 0)
    home.forget()
    expected = []
    with redis.Redis.from_url(redis_url) as client, client.pipeline(transaction=False) as pipe:
        sha = client.script_load(calls.home_script(test_clock=True))
        for _ in range(STEPS):
            ask = steps.next()
            answer = home.ask(ask, steps.now * 1_000_000)
            expected.append((steps.now, ask, answer))
            names = [f"{prefix}-roster", *(f"{prefix}-{a.place.decode()}" for a, _ in ask.requests)]
            pipe.evalsha(
                sha, len(names), *names, pack_hello(ask, times),
                *(pack_request(*each) for each in ask.requests), steps.now, LINGER,
            )  # fmt: skip
            if answer.replies and steps.chance.random() < 0.9:
                reply = answer.replies[0]
                steps.has[ask.region] = reply.number, reply.burst, reply.rate
        raw = pipe.execute()
    for at, ((now, ask, answer), (head, *replies)) in enumerate(zip(expected, raw, strict=True)):
        assert unpack_answer(head, replies) == answer, f"step {at} at {now}: {ask}"
    seen = {answer.joined.status for _, _, answer in expected}
    assert seen == {JOINED, TAKEN, STALE, TOO_MUCH}
    lent = [answer for *_, answer in expected if answer.replies and answer.replies[0].rate]
    assert len(lent) > STEPS / 10


def test_a_foreign_value_is_an_error_of_its_account_alone(redis_url: str, prefix: str) -> None:
    times = law.times_of(3_000_000_000)
    account = Account(law.terms_of(Limit.parse("100/second")), b"")
    request = pack_request(account, Request(REPORT, 10))
    hello = pack_hello(Ask("eu", "s", 1, 100_000, 100_000, 0, []), times)
    with redis.Redis.from_url(redis_url) as client:
        client.set(f"{prefix}-a", "not an account")
        head, bad, good = client.eval(
            calls.home_script(), 3, f"{prefix}-r", f"{prefix}-a", f"{prefix}-b", hello, request,
            request,
        )  # fmt: skip
        assert isinstance(bad, redis.ResponseError)
        answer = unpack_answer(head, [bad, good])
        assert answer.replies[0] is None
        assert answer.replies[1] is not None
        assert client.get(f"{prefix}-a") == b"not an account"
