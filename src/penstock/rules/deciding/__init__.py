"""Deciding: from descriptors to a verdict, over a store.

::

    descriptors ── Planner ── Plan ── hit ─────────────────────────┐
               └── Check ── heritage.carry ── decide ── results ── Verdict

Plain requests are decided by a `Plan`, all others by a `Check`. `compiled.py` has the rules in
force with their counters, `slots.py` what is about concurrency, `switches.py` what operators
change, `lineage.py` and `heritage.py` the usage of limits that have changed since. May import
`matching` and the stores, never `reading`.
"""
