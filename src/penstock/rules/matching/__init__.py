"""Matching: from a request's descriptor to the rule that applies, and the key of its counter.

A domain becomes a tree once (`tree.py`). `Matcher.match` walks down it, and `trace.py` explains
the path. It is pure: it counts nothing and reads no clock.
"""
