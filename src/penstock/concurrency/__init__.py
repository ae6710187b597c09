"""How many at once: slots, the line before them, and leases that share them with a fleet."""

from penstock.concurrency.async_limiter import AsyncConcurrencyLimiter
from penstock.concurrency.desk import State
from penstock.concurrency.limiter import ConcurrencyLimiter
from penstock.concurrency.rules import HIGH, LOW, NORMAL
from penstock.concurrency.size import Size
from penstock.concurrency.slot import Hold

__all__ = [
    "HIGH",
    "LOW",
    "NORMAL",
    "AsyncConcurrencyLimiter",
    "ConcurrencyLimiter",
    "Hold",
    "Size",
    "State",
]
