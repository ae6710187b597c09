"""Throws broken reports at the quota service: each is refused, or as protobuf reads it.

    python tests/service/rlqs/fuzz.py --count 100000     or --minutes 10
    python tests/service/rlqs/fuzz.py --only 4711        once more what was found before

An input is a real report in which bytes were dropped, doubled, moved or changed. Nothing but
`ValueError` may be raised, and what is not refused is answered.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest does; this is run alone, too
from service.rlqs.envoys import DOMAIN, World, rlqs_pb2
from service.rlqs.test_messages import check_as_protobuf

RULES = f"domain: {DOMAIN}\ndescriptors:\n- key: user\n  limits: 100/second\n"
WORLDS = 200  # inputs for each world


def report(chance: random.Random) -> bytes:
    reports = rlqs_pb2.RateLimitQuotaUsageReports(domain=DOMAIN)
    for _ in range(chance.randint(0, 4)):
        usage = reports.bucket_quota_usages.add()
        for key in chance.sample(["user", "path", "ü", ""], chance.randint(0, 3)):
            usage.bucket_id.bucket[key] = chance.choice(["a", "b", "x" * 300, "\0", ""])
        usage.num_requests_allowed = chance.choice([0, 1, 10**6, 2**64 - 1])
        usage.num_requests_denied = chance.choice([0, 7, 2**63])
        usage.time_elapsed.seconds = chance.choice([0, 5, -1])
    return bytes(reports.SerializeToString())


def damaged(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(0, 4)):
        start = chance.randint(0, len(data))
        end = min(len(data), start + chance.randint(0, 12))
        piece = data[start:end]
        change = chance.choice(["drop", "double", "noise", "move"])
        if change == "drop":
            data = data[:start] + data[end:]
        elif change == "double":
            data = data[:end] + piece + data[end:]
        elif change == "noise":
            data = data[:start] + chance.randbytes(len(piece) or 1) + data[end:]
        else:
            rest = data[:start] + data[end:]
            at = chance.randint(0, len(rest))
            data = rest[:at] + piece + rest[at:]
    return data


def try_one(seed: int, world: World) -> None:
    chance = random.Random(seed)
    data = damaged(report(chance), chance)
    link = world.connect(world.envoy(f"envoy-{seed}"))
    assert link is not None
    check_as_protobuf(data)
    try:
        link.stream.receive(data)
    except ValueError:
        assert not link.stream.buckets
    else:
        world.run_until(world.now + 200)
        assert all(bucket.action for bucket in link.stream.buckets.values())
    link.over()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    if options.only is not None:
        try_one(options.only, World(RULES))
        return
    end = time.monotonic() + options.minutes * 60
    seed = 0
    while seed < options.count or time.monotonic() < end:
        if seed % WORLDS == 0:
            world = World(RULES)
        try:
            try_one(seed, world)
        except BaseException:
            print(f"--only {seed}", file=sys.stderr)
            raise
        seed += 1
    print(f"{seed} reports")


if __name__ == "__main__":
    main()
