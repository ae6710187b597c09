"""Penstock: rate limits, decided in tens of nanoseconds.

>>> from penstock import Limiter
>>> limiter = Limiter("100/minute")
>>> decision = limiter.hit("user:42")
>>> decision.allowed
True
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from penstock import _mode as _mode  # first: it decides which core the others find
from penstock._version import __version__
from penstock.async_gate import AsyncGate
from penstock.async_limiter import AsyncLimiter
from penstock.breaker import CircuitBreaker
from penstock.clock import Clock, MonotonicClock, WallClock
from penstock.concurrency import AsyncConcurrencyLimiter, ConcurrencyLimiter
from penstock.decision import Decision
from penstock.errors import (
    CircuitOpen,
    ForeignValue,
    InvalidCost,
    InvalidKey,
    LimitError,
    LimitExceeded,
    LineFull,
    NoSlot,
    NotReplicated,
    PenstockError,
    RevisionConflict,
    RulesError,
    StoreError,
    StoreFileError,
    StoreUnavailable,
    TooManyLimits,
    UnsupportedLimit,
    ValueTooLarge,
    WaitedTooLong,
)
from penstock.gate import Gate
from penstock.lazy_names import __getattr__ as __getattr__
from penstock.limiter import Limiter
from penstock.limits import Limit
from penstock.rules.deciding.verdict import Descriptor, Verdict
from penstock.stores.memory import MemoryStore
from penstock.stores.shared import SharedMemoryStore

if _TYPE_CHECKING:
    from penstock.stores.redis import RedisStore

__all__ = [
    "AsyncConcurrencyLimiter",
    "AsyncGate",
    "AsyncLimiter",
    "CircuitBreaker",
    "CircuitOpen",
    "Clock",
    "ConcurrencyLimiter",
    "Decision",
    "Descriptor",
    "ForeignValue",
    "Gate",
    "InvalidCost",
    "InvalidKey",
    "Limit",
    "LimitError",
    "LimitExceeded",
    "Limiter",
    "LineFull",
    "MemoryStore",
    "MonotonicClock",
    "NoSlot",
    "NotReplicated",
    "PenstockError",
    "RedisStore",
    "RevisionConflict",
    "RulesError",
    "SharedMemoryStore",
    "StoreError",
    "StoreFileError",
    "StoreUnavailable",
    "TooManyLimits",
    "UnsupportedLimit",
    "ValueTooLarge",
    "Verdict",
    "WaitedTooLong",
    "WallClock",
    "__version__",
]
