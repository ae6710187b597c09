"""How the peers are set up over Redis: as their documentation tells their users to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from benchmarks.settings import Names, Setup


def limits_redis(strategy: str, client: str) -> Callable[[Setup], Names]:
    def make(setup: Setup) -> Names:
        import limits
        from limits.aio import strategies
        from limits.aio.storage import RedisStorage

        storage = RedisStorage(f"async+{setup.url}", implementation=client)
        limiter = getattr(strategies, strategy)(storage)
        return {"limiter": limiter, "item": limits.parse(f"{setup.amount}/{setup.per}")}

    return make


def throttled_redis(using: str) -> Callable[[Setup], Names]:
    def make(setup: Setup) -> Names:
        from throttled import asyncio as throttled

        store = throttled.RedisStore(server=setup.url)
        quota = throttled.per_duration(timedelta(seconds=setup.seconds), setup.amount)
        return {"throttle": throttled.Throttled(using=using, quota=quota, store=store)}

    return make


def pyrate_log(setup: Setup) -> Awaitable[Names]:
    """Its log in a sorted set; the script is loaded once for all keys."""
    from pyrate_limiter import Limiter, Rate, RedisBucket
    from redis.asyncio import Redis

    client = Redis.from_url(setup.url)
    rates = [Rate(setup.amount, setup.seconds * 1000)]

    async def load() -> Names:
        first: Any = await RedisBucket.init(rates, client, "the first")
        sha = first.script_hash
        return {
            "limiter": Limiter(_bucket_a_key(RedisBucket, lambda key: (rates, client, key, sha)))
        }

    return load()


def pyrate_gcra(setup: Setup) -> Names:
    from pyrate_limiter import GCRA, Limiter, Rate, RedisStateStore, StateBucket
    from redis.asyncio import Redis

    client = Redis.from_url(setup.url)
    rates = [Rate(setup.amount, setup.seconds * 1000)]
    return {
        "limiter": Limiter(
            _bucket_a_key(StateBucket, lambda key: (rates, GCRA(), RedisStateStore(client, key)))
        )
    }


def _bucket_a_key(kind: type, arguments: Callable[[str], tuple[Any, ...]]) -> Any:
    """The factory that pyrate-limiter's users write for limits by key."""
    import pyrate_limiter

    class BucketAKey(pyrate_limiter.BucketFactory):
        def __init__(self) -> None:
            self.clock = pyrate_limiter.WallClock()
            self.buckets: dict[str, Any] = {}

        def wrap_item(self, name: str, weight: int = 1) -> Any:
            return pyrate_limiter.RateItem(name, self.clock.now(), weight=weight)

        def get(self, item: Any) -> Any:
            bucket = self.buckets.get(item.name)
            if bucket is None:
                bucket = self.create(kind, *arguments(item.name))
                self.buckets[item.name] = bucket
            return bucket

    return BucketAKey()


# What a user writes who has no library: GCRA over one key, by the server's clock, with an
# answer that tells as much as a limiter's must: allowed, remaining, retry after, reset after.
GCRA = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, capacity, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tat = tonumber(redis.call('GET', KEYS[1]) or 0)
if tat < now then
  tat = now
elseif tat > now + capacity then
  tat = now + capacity
end
local new = tat + cost * interval
local room = now + capacity - new
if room < 0 then
  return {0, math.floor((now + capacity - tat) / interval), -room, tat - now}
end
redis.call('SET', KEYS[1], string.format('%.0f', new), 'PX', math.ceil((new - now) / 1000))
return {1, math.floor(room / interval), 0, new - now}
"""


def bare_async(setup: Setup) -> Awaitable[Names]:
    from redis.asyncio import Redis

    client = Redis.from_url(setup.url)

    async def load() -> Names:
        return {"client": client, "sha": await client.script_load(GCRA), **_gcra_of(setup)}

    return load()


def bare_sync(setup: Setup) -> Names:
    from redis import Redis

    client = Redis.from_url(setup.url)
    return {"client": client, "sha": client.script_load(GCRA), **_gcra_of(setup)}


def _gcra_of(setup: Setup) -> Names:
    interval = setup.seconds * 1_000_000 // setup.amount  # microseconds
    return {"interval": interval, "capacity": interval * setup.amount}
