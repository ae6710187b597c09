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
    RulesError,
    StoreError,
    StoreFileError,
    StoreUnavailable,
    UnsupportedLimit,
)
from penstock.gate import AsyncGate, Gate
from penstock.limit import Limit
from penstock.limiter import Limiter
from penstock.rules.verdict import Descriptor, Verdict
from penstock.stores.memory import MemoryStore
from penstock.stores.shared import SharedMemoryStore

__all__ = [
    "AsyncGate",
    "AsyncLimiter",
    "Clock",
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
    "MemoryStore",
    "MonotonicClock",
    "PenstockError",
    "RulesError",
    "SharedMemoryStore",
    "StoreError",
    "StoreFileError",
    "StoreUnavailable",
    "UnsupportedLimit",
    "Verdict",
    "WallClock",
    "__version__",
]
