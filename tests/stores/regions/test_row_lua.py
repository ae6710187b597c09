"""The rows of a site in Redis and their model in Python answer alike, step by step."""

from __future__ import annotations

import random
import struct

import pytest

from penstock.durations import MICROSECOND, MILLISECOND, SECOND
from penstock.limits import Limit
from penstock.stores.regions import law
from penstock.stores.regions.messages import pack_share, rule_of, unpack_applied
from penstock.stores.regions.row import APPLIED, BUSY, LOOKED, Share, SiteRow

redis = pytest.importorskip("redis")
calls = pytest.importorskip("penstock.stores.regions.calls")
redis_script = pytest.importorskip("penstock.stores.redis.script")

START = 1_704_067_200 * SECOND + 123_456_000
STEPS = 3_000
LINGER = 10_000_000
LIMITS = ["100/second", "1000000/second", "30/minute burst 100", "1000/day", "77/second burst 300"]


def times(now: int) -> list[int]:
    return [now // SECOND, now % SECOND // MICROSECOND, LINGER, 0]


@pytest.mark.parametrize("text", LIMITS)
@pytest.mark.parametrize("seed", [1, 2])
def test_lua_and_python_answer_alike(redis_url: str, prefix: str, text: str, seed: int) -> None:
    chance = random.Random(seed)
    limit = Limit.parse(text)
    terms = law.terms_of(limit)
    floor = 100_000
    row = SiteRow(terms, *terms.part(floor))
    now, number = START, 0
    held, last = 0, 0  # by instances that lease
    leases = f"{prefix}-leases"
    expected: list[object] = []
    with redis.Redis.from_url(redis_url) as client, client.pipeline(transaction=False) as pipe:
        hits = client.script_load(redis_script.script(test_clock=True))
        shares = client.script_load(calls.site_script(test_clock=True))
        for _ in range(STEPS):
            now += chance.choice([0, 1_000, MILLISECOND, 40 * MILLISECOND, SECOND])
            if chance.random() < 0.05:
                now += chance.choice([30 * SECOND, 3_600 * SECOND])
            if chance.random() < 0.1:
                floor = chance.choice([100_000, 100_000, 200_000])
                row.floor_rate, row.floor_burst = terms.part(floor)
            policy = rule_of(terms, floor).packed()
            if chance.random() < 0.5:
                cost = chance.choice([1, 1, 2, max(1, limit.burst // 7), limit.burst])
                expected.append(row.hit(cost, now))
                pipe.evalsha(hits, 1, prefix, 0, 4, policy, "hit", 3, cost, *times(now))
                continue
            if chance.random() < 0.1:
                # As the bank of leases does: none lasts longer than it takes to fill the bucket.
                full = limit.burst * limit.interval_ns // 18_000 * 18_000
                held, last = (
                    chance.choice([0, limit.burst // 3]),
                    now + full // chance.choice([2, 9]),
                )
                pipe.hset(leases, "", struct.pack("<5d", held, 0, 1, 0, last // 1000))
                expected.append(None)
            share = None
            if chance.random() < 0.8:
                number += chance.choice([1, 1, 1, 0, -1])
                burst = chance.randrange(limit.burst)
                share = Share(
                    burst, chance.randrange(terms.rate), chance.randint(0, burst // 2),
                    now + chance.choice([-1, 2, 10, 60]) * SECOND // 1000 * 1000, max(1, number),
                )  # fmt: skip
            live = held if last > now else 0
            expected.append(row.apply(share, now, live, last))
            pipe.evalsha(shares, 2, prefix, leases, 3, policy, pack_share(2, share), *times(now))
        raw = pipe.execute()
    statuses = set()
    for at, (wanted, answer) in enumerate(zip(expected, raw, strict=True)):
        if isinstance(wanted, bool):
            value = answer[1]
            assert (value[0] & 1 == 1) == wanted, f"step {at}"
        elif wanted is not None:
            applied = unpack_applied(answer[1])
            assert applied == wanted, f"step {at}"
            statuses.add(applied.status)
    assert statuses == {LOOKED, APPLIED, BUSY}
    assert {True, False} <= set(filter(lambda each: isinstance(each, bool), expected))


def test_a_share_ends_by_itself(redis_url: str, prefix: str) -> None:
    terms = law.terms_of(Limit.parse("100/second"))
    policy = rule_of(terms, 100_000).packed()
    share = Share(80, terms.rate // 2, 80, START + 2 * SECOND, 1)
    with redis.Redis.from_url(redis_url) as client:
        hit, site = redis_script.script(test_clock=True), calls.site_script(test_clock=True)
        client.eval(site, 2, prefix, f"{prefix}-l", 3, policy, pack_share(2, share), *times(START))

        def passed(now: int) -> int:
            replies = [
                client.eval(hit, 1, prefix, 0, 4, policy, 3, *times(now))[1] for _ in range(100)
            ]
            return sum(reply[0] & 1 for reply in replies)

        assert passed(START) == 90  # 10 of the floor, 80 of the share
        assert passed(START + SECOND + SECOND // 100) == 60  # a tenth and a half of the rate
        assert passed(START + 3 * SECOND) == 10  # the floor's burst; the rest went with the share
        assert passed(START + 4 * SECOND) == 10
