"""Who takes part over Redis, and the call that its user types.

All of them decide on the same server, each in a database of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import redis_peers as peers
from benchmarks.contenders import Contender
from benchmarks.settings import Names, Setup


def penstock_redis(limiter: str, **options: Any) -> Callable[[Setup], Names]:
    """``degraded`` gets what was not decided by the server: it must stay empty."""

    def make(setup: Setup) -> Names:
        import penstock
        from penstock.stores.redis import RedisStore

        store = RedisStore(setup.url)
        degraded: list[Any] = []
        store.subscribe(degraded.append)
        limit = penstock.Limit(setup.amount, setup.per, **options)
        made = getattr(penstock, limiter)(limit, store)
        return {"limiter": made, "store": store, "degraded": degraded}

    return make


def three_limits(setup: Setup) -> Names:
    import penstock

    names = penstock_redis("AsyncLimiter")(setup)
    for number, per in enumerate(("hour", "day", "week"), start=1):
        names[f"limit{number}"] = penstock.Limit(setup.amount, per)
    return names


def _penstock(name: str, **options: Any) -> Contender:
    make = penstock_redis("AsyncLimiter", **options)
    is_log = options.get("algorithm") == "sliding_log"
    call = "await limiter.hit(key)"
    return Contender("Penstock", name, make, call, "({}).allowed", is_async=True, is_log=is_log)


def _limits(algorithm: str, strategy: str, client: str, title: str) -> Contender:
    make = peers.limits_redis(strategy, client)
    return Contender(
        "limits", f"{algorithm}, {title}", make, "await limiter.hit(item, key)", is_async=True
    )


def _throttled(algorithm: str, using: str) -> Contender:
    make = peers.throttled_redis(using)
    call = "await throttle.limit(key)"
    return Contender("throttled-py", algorithm, make, call, "not ({}).limited", is_async=True)


def _pyrate(algorithm: str, make: Callable[[Setup], Any], call: str) -> Contender:
    return Contender("pyrate-limiter", algorithm, make, call, is_async=True)


TOKEN_BUCKET = _penstock("token_bucket")
HIT_ALL = Contender(
    "Penstock", "hit_all over three limits", three_limits,
    "await limiter.hit_all([(key, limit1), (key, limit2), (key, limit3)])", "({}).allowed",
    is_async=True,
)  # fmt: skip
LEAKY_BUCKET = _penstock("leaky_bucket", algorithm="leaky_bucket")
FIXED_WINDOW = _penstock("fixed_window", algorithm="fixed_window")
SLIDING_WINDOW = _penstock("sliding_window", algorithm="sliding_window")
SLIDING_LOG = _penstock("sliding_log", algorithm="sliding_log")
LOCKOUT = _penstock("token_bucket, lockout", lockout="15m")
SOFT = _penstock("token_bucket, soft", soft=(1, "1h"))
EXTRA = {SOFT.name: 1}  # units above the limit that are let through on purpose
THREADS = Contender(
    "Penstock", "token_bucket, threads", penstock_redis("Limiter"), "limiter.hit(key)",
    "{}.allowed",
)  # fmt: skip

_FIXED, _SLIDING = "FixedWindowRateLimiter", "SlidingWindowCounterRateLimiter"
LIMITS_FIXED = _limits("fixed window", _FIXED, "redispy", "redis-py")
THROTTLED_GCRA = _throttled("GCRA", "gcra")
PEERS = [
    LIMITS_FIXED,
    _limits("sliding window counter", _SLIDING, "redispy", "redis-py"),
    _limits("moving window (log)", "MovingWindowRateLimiter", "redispy", "redis-py"),
    _limits("fixed window", _FIXED, "coredis", "coredis"),
    _limits("sliding window counter", _SLIDING, "coredis", "coredis"),
    THROTTLED_GCRA,
    _throttled("token bucket", "token_bucket"),
    _pyrate("GCRA", peers.pyrate_gcra, "await limiter.try_acquire_async(key, blocking=False)"),
    _pyrate(
        "sliding log", peers.pyrate_log, "await limiter.try_acquire_async(key, blocking=False)"
    ),
    # Its other call, which does not hold the limiter's lock until the answer is there.
    _pyrate("GCRA, no lock", peers.pyrate_gcra, "await limiter.try_acquire(key, blocking=False)"),
]
EVALSHA = "client.evalsha(sha, 1, key, interval, capacity, 1)"
BARE = Contender(
    "redis-py", "bare EVALSHA of GCRA", peers.bare_async, f"await {EVALSHA}", "({})[0]",
    is_async=True,
)  # fmt: skip
BARE_THREADS = Contender(
    "redis-py", "bare EVALSHA of GCRA, threads", peers.bare_sync, EVALSHA, "{}[0]"
)

ALL = [
    *(TOKEN_BUCKET, HIT_ALL, LEAKY_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG),
    *(LOCKOUT, SOFT, THREADS, *PEERS, BARE, BARE_THREADS),
]


def named(name: str) -> Contender:
    return next(contender for contender in ALL if contender.name == name)
