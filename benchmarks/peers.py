"""How the peers are set up: as their documentation tells their users to."""

from __future__ import annotations

import collections
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from benchmarks.settings import Names, Setup


def limits_memory(strategy: str) -> Callable[[Setup], Names]:
    def make(setup: Setup) -> Names:
        import limits
        from limits.storage import MemoryStorage

        limiter = getattr(limits.strategies, strategy)(MemoryStorage())
        return {"limiter": limiter, "item": limits.parse(f"{setup.amount}/{setup.per}")}

    return make


def throttled_memory(using: str) -> Callable[[Setup], Names]:
    """With room for all keys: by default it keeps 1024 and forgets the others' counts."""

    def make(setup: Setup) -> Names:
        import throttled

        # Its windows keep two entries a key.
        store = throttled.MemoryStore(options={"MAX_SIZE": 2 * setup.max_keys + 1024})
        quota = throttled.per_duration(timedelta(seconds=setup.seconds), setup.amount)
        return {"throttle": throttled.Throttled(using=using, quota=quota, store=store)}

    return make


def pyrate_memory(class_name: str) -> Callable[[Setup], Names]:
    """One bucket, or with many keys a factory that makes one for each."""

    def make(setup: Setup) -> Names:
        import pyrate_limiter

        algorithm = getattr(pyrate_limiter, class_name)()
        is_log = isinstance(algorithm, pyrate_limiter.LogAlgorithm)
        kind = pyrate_limiter.InMemoryBucket if is_log else pyrate_limiter.StateBucket
        rates = [pyrate_limiter.Rate(setup.amount, setup.seconds * 1000)]
        if setup.many:
            return {"limiter": pyrate_limiter.Limiter(_bucket_a_key(kind, rates, algorithm))}
        return {"limiter": pyrate_limiter.Limiter(kind(rates, algorithm))}

    return make


def _bucket_a_key(kind: type, rates: list[Any], algorithm: Any) -> Any:
    """The factory that pyrate-limiter's users write for limits by key."""
    import pyrate_limiter

    class BucketAKey(pyrate_limiter.BucketFactory):
        def __init__(self) -> None:
            self.clock = pyrate_limiter.MonotonicClock()
            self.buckets: dict[str, Any] = {}

        def wrap_item(self, name: str, weight: int = 1) -> Any:
            return pyrate_limiter.RateItem(name, self.clock.now(), weight=weight)

        def get(self, item: Any) -> Any:
            bucket = self.buckets.get(item.name)
            if bucket is None:
                bucket = self.buckets[item.name] = self.create(kind, rates, algorithm)
            return bucket

    return BucketAKey()


def aiolimiter_memory(setup: Setup) -> Names:
    """It knows no keys: a user keeps a limiter for each."""
    from aiolimiter import AsyncLimiter

    if not setup.many:
        return {"limiter": AsyncLimiter(setup.amount, setup.seconds)}
    return {"limiters": collections.defaultdict(lambda: AsyncLimiter(setup.amount, setup.seconds))}
