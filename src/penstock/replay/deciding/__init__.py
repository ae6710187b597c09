"""Deciding on the requests of a log, as a gate would have decided on them.

::

    Block ── value_columns.py ── fast.py ── _decider.pyx ──┐
        └─── log_request.py ──── slow.py ── Gate ──────────┴── tallies.py

``fast.py`` asks the matcher once for each distinct value, by ``entries.py``, and decides by the
algorithms on dense rows. Rules that it cannot decide (quotas, replaced limits, concurrency) and
installations that are not compiled take the way of ``slow.py``: a `Gate` over a `MemoryStore`
on the log's clock. Both give the same answers.
"""
