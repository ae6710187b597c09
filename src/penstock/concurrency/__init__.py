"""How many may run at once: slots, a queue before them, and leases that share them with a fleet.

`ConcurrencyLimiter` hands out slots as blocks (`slot.py`). `local_slots.py` holds the slots of
this process and wakes whoever is next; `redis_slots.py` shares them through Redis as leases,
which `renewal.py` renews. The order of the queue is pure logic: `queue_policy.py`,
`fair_queue.py`, `waiting_queue.py`. May import what lies below `limiter.py`, and the circuit
breaker.
"""

from penstock.concurrency.async_limiter import AsyncConcurrencyLimiter
from penstock.concurrency.limiter import ConcurrencyLimiter
from penstock.concurrency.local_slots import State
from penstock.concurrency.queue_policy import HIGH, LOW, NORMAL
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
