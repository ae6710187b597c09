"""How many calls run at once: slots, a queue before them, and leases that share slots.

`ConcurrencyLimiter` hands out slots as blocks (`slot.py`). `local_slots.py` holds the slots of
this process and wakes the next waiter; `redis_slots.py` shares them through Redis as leases,
which `renewal.py` renews. The order of the queue is pure logic: `queue_policy.py`,
`fair_queue.py`, `waiting_queue.py`. May import what is below `limiter.py`, and the circuit
breaker.
"""

from penstock.concurrency.limiter import AsyncConcurrencyLimiter, ConcurrencyLimiter
from penstock.concurrency.local_slots import State
from penstock.concurrency.queue_policy import HIGH, LOW, NORMAL, Size
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
