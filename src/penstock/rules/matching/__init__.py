"""Matching: from a request's descriptor to the rule that applies, and the key of its counter.

A domain is made into a tree once (`tree.py`); `Matcher.match` walks down it, `trace.py` explains
the way it took. It is pure: nothing is counted, and no time is looked at.
"""
