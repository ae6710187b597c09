"""Penstock: rate limits, decided in tens of nanoseconds.

>>> from penstock import Limiter
>>> limiter = Limiter("100/minute")
>>> decision = limiter.hit("user:42")
>>> decision.allowed
True
"""

from penstock import _mode as _mode  # first: it decides which core the others find
from penstock._version import __version__
from penstock.async_limiter import AsyncLimiter
from penstock.clock import Clock, MonotonicClock, WallClock
from penstock.decision import Decision
from penstock.errors import (
    ForeignValue,
    InvalidCost,
    InvalidKey,
    LimitError,
    LimitExceeded,
    PenstockError,
    StoreError,
    StoreFileError,
    StoreUnavailable,
    UnsupportedLimit,
)
from penstock.limit import Limit
from penstock.limiter import Limiter
from penstock.stores.memory import MemoryStore
from penstock.stores.shared import SharedMemoryStore

__all__ = [
    "AsyncLimiter",
    "Clock",
    "Decision",
    "ForeignValue",
    "InvalidCost",
    "InvalidKey",
    "Limit",
    "LimitError",
    "LimitExceeded",
    "Limiter",
    "MemoryStore",
    "MonotonicClock",
    "PenstockError",
    "SharedMemoryStore",
    "StoreError",
    "StoreFileError",
    "StoreUnavailable",
    "UnsupportedLimit",
    "WallClock",
    "__version__",
]
