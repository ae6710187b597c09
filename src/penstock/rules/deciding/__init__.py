"""Deciding: what the limits of a request come to, over a store.

::

    descriptors ── Planner ── Plan ── hit ──────────────────────────┐
               └── Check ── heritage.carry ── decide ── verdicts ── Verdict

A plain request takes the short way, by a `Plan`; `Check` is for all others. `compiled.py` has the
rules in force with their counters, `switches.py` what operators change, `lineage.py` and
`heritage.py` what was used of limits that have changed since. May import `matching` and the
stores, never `reading`.
"""
