"""Rules: which limits apply to a request, and what they decide.

Here is what all of it shares: the model of a file of rules (`model.py`, `walk.py`), lists of
values, wildcards, and problems with their places. The way of rules and of a request::

    text ── reading ── RuleSet ─┐
                                deciding ── Verdict
    descriptors ── matching ────┘

`reading` and `matching` know neither each other nor a store. `deciding` uses `matching`. May
import the stores and everything below them, never the gate.
"""
