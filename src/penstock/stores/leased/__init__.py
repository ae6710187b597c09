"""LeasedStore: limits that are shared through Redis and decided in each process.

It leases units of hot keys from their counters in Redis, and spends them here. It imports
`stores/redis` and what that imports, never the limiters. A hit goes::

    LeasedCounters.hit        finds the key's lease; without one: RedisCounters.hit
      Lease.spend             takes units in hand, or refuses while the bank is empty
    ------------------------- when the lease runs low, in the thread of renewal.py
      Lease.message           what was spent, and how much more is wanted
      Exchange.send           one call for the messages of many keys (wire.py)
    ------------------------- the server runs bank.lua, whose twin is bank.py (and rows.py)
      Lease.receive           units in hand, and the time until which they may be spent

`law.py` has the numbers: which limits are leased, for how long, and how much at a time. The
times of leases come from `boottime.py`. `stretch.py` makes leases longer where there are too many
to renew, and `holders.py` says who holds how much. `journal.py` counts what happens and emits
events, and `ending.py` is for forks and signals. docs/design/leases.md explains it all.
"""

from penstock.stores.leased.holders import Holder, LeasedKey
from penstock.stores.leased.stats import LeaseStats
from penstock.stores.leased.store import LeasedStore

__all__ = ["Holder", "LeaseStats", "LeasedKey", "LeasedStore"]
