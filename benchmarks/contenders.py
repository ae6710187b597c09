"""Who takes part: how each library is set up, and the call that its user types.

A contender's ``call`` is source text. It is compiled into the same loop for all
(see `benchmarks.loops`), so that nobody pays for a wrapper. Libraries are
imported only when they are set up: a process measures one of them and holds no
other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks import peers
from benchmarks.settings import Names, Setup, Unavailable, scratch_file

LOGS_HOLD = 1_000_000  # the longest log that Penstock allows, so the highest limit of any


@dataclass(frozen=True)
class Contender:
    library: str
    algorithm: str
    make: Callable[[Setup], Names]
    call: str
    allowed: str = "{}"  # the call turned into a truth value
    many_call: str = ""  # where it differs with many keys
    refused_call: str = ""  # where it differs when it refuses
    take: str = "pass"  # what must follow where that only looked
    is_async: bool = False
    is_log: bool = False  # keeps an entry a hit
    fast: bool = False  # some tens or hundreds of nanoseconds
    pure: bool = False  # Penstock without its compiled core

    @property
    def name(self) -> str:
        return f"{self.library}: {self.algorithm}"

    def typed(self, scenario: str = "") -> str:
        """The call in a scenario."""
        special = {"many": self.many_call, "refused": self.refused_call}.get(scenario)
        return special or self.call

    def decides(self) -> str:
        """An expression that is true when the hit was admitted."""
        return self.allowed.format(self.refused_call or self.call)


def penstock_memory(algorithm: str, **options: Any) -> Callable[[Setup], Names]:
    def make(setup: Setup) -> Names:
        from penstock import Limit, Limiter, MemoryStore

        limit = Limit(setup.amount, setup.per, algorithm=algorithm, **options)
        return {"limiter": Limiter(limit, MemoryStore(setup.max_keys, setup.clock))}

    return make


def penstock_shared(**options: Any) -> Callable[[Setup], Names]:
    def make(setup: Setup) -> Names:
        import penstock

        if not hasattr(penstock, "SharedMemoryStore"):
            raise Unavailable("this Penstock has no SharedMemoryStore")
        path = setup.path or scratch_file()
        store = penstock.SharedMemoryStore(path, max_keys=setup.max_keys, **options)
        return {"limiter": penstock.Limiter(penstock.Limit(setup.amount, setup.per), store)}

    return make


def floor(_: Setup) -> Names:
    from benchmarks import floors

    return {"floor": floors.load()}


def _penstock(algorithm: str, *, is_log: bool = False) -> Contender:
    make = penstock_memory(algorithm)
    return Contender(
        "Penstock", algorithm, make, "limiter.hit(key)", "{}.allowed", is_log=is_log, fast=True
    )


def _limits(algorithm: str, strategy: str, *, is_log: bool = False) -> Contender:
    make = peers.limits_memory(strategy)
    return Contender("limits", algorithm, make, "limiter.hit(item, key)", is_log=is_log)


def _throttled(algorithm: str, using: str) -> Contender:
    make = peers.throttled_memory(using)
    return Contender("throttled-py", algorithm, make, "throttle.limit(key)", "not {}.limited")


def _pyrate(algorithm: str, class_name: str, *, is_log: bool) -> Contender:
    make = peers.pyrate_memory(class_name)
    call = "limiter.try_acquire(key, blocking=False)"
    return Contender("pyrate-limiter", algorithm, make, call, is_log=is_log)


LOOP = Contender("floor", "the loop itself", lambda _: {}, "pass", fast=True)
EMPTY = Contender("floor", "empty C call", floor, "floor.nothing(key)", fast=True)
CLOCK = Contender("floor", "empty C call + clock", floor, "floor.clock(key)", fast=True)

TOKEN_BUCKET = _penstock("token_bucket")
PENSTOCK = [
    TOKEN_BUCKET,
    _penstock("leaky_bucket"),
    _penstock("fixed_window"),
    _penstock("sliding_window"),
    _penstock("sliding_log", is_log=True),
]
SHARED = Contender(
    "Penstock", "token_bucket, shared memory", penstock_shared(), "limiter.hit(key)", "{}.allowed",
    fast=True,
)  # fmt: skip
# As little as a bucket needs: the default has room for the other algorithms.
SHARED_SMALL = Contender(
    "Penstock", "token_bucket, shared memory, bytes_per_key=16", penstock_shared(bytes_per_key=16),
    "limiter.hit(key)", "{}.allowed", fast=True,
)  # fmt: skip
PURE = Contender(
    "Penstock", "token_bucket, uncompiled", penstock_memory("token_bucket"), "limiter.hit(key)",
    "{}.allowed", pure=True,
)  # fmt: skip

LIMITS = [
    _limits("fixed window", "FixedWindowRateLimiter"),
    _limits("sliding window counter", "SlidingWindowCounterRateLimiter"),
    _limits("moving window (log)", "MovingWindowRateLimiter", is_log=True),
]
THROTTLED = [_throttled("GCRA", "gcra"), _throttled("token bucket", "token_bucket")]
PYRATE = [
    _pyrate("sliding log", "SlidingWindowLog", is_log=True),
    _pyrate("GCRA", "GCRA", is_log=False),
]
AIOLIMITER = Contender(
    "aiolimiter", "leaky bucket (async)", peers.aiolimiter_memory, "await limiter.acquire()",
    many_call="await limiters[key].acquire()", refused_call="limiter.has_capacity()",
    take="await limiter.acquire()", is_async=True,
)  # fmt: skip

PEERS = [*LIMITS, *THROTTLED, *PYRATE, AIOLIMITER]
# Measured for accuracy only.
MORE_THROTTLED = [
    _throttled("fixed window", "fixed_window"),
    _throttled("sliding window", "sliding_window"),
    _throttled("leaking bucket", "leaking_bucket"),
]
MORE_PYRATE = [_pyrate("fixed window", "FixedWindow", is_log=True)]

ALL = [
    *(LOOP, EMPTY, CLOCK, *PENSTOCK, SHARED, SHARED_SMALL, PURE),
    *(*PEERS, *MORE_THROTTLED, *MORE_PYRATE),
]


def named(name: str) -> Contender:
    return next(contender for contender in ALL if contender.name == name)
