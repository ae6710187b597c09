"""RegionStore: one limit over several sites, each of which decides in its own Redis.

A site has a floor of every limit, which is reserved for it, and borrows from the home what it
needs beyond that. It imports `stores/redis`, and of `stores/leased` the clock and the names of
instances. A hit goes::

    RegionCounters.hit        RedisCounters.hit, by the policy of regional_bucket.lua: the row has
                              the floor and the share of the site (row.py)
      Watch.offer             counts what is asked for, if the key needs more than its floor
    ------------------------- in the thread of region.py, a few times in a lease
      Agent.round             the elected agent of the site reports demand, applies shares
        SiteCalls, HomeCalls  the scripts tick.lua, agent.lua, site.lua and home.lua (calls.py)
    ------------------------- the home
      Roster.join             the floors of all regions
      Account.settle          who gets how much, by law.py; booked before it is answered

`account.py`, `roster.py` and `row.py` are the models that the Lua is checked against. What
cannot be divided is decided by the home. docs/design/regions.md has the law and its proof.
"""

from penstock.stores.regions.stats import RegionStats
from penstock.stores.regions.store import RegionStore

__all__ = ["RegionStats", "RegionStore"]
