"""Rules: which limits apply to a request, and what they decide.

The files here are what the folders share: the model of a file of rules (`model.py`, `walk.py`),
lists of values (`lists.py`), values with wildcards (`wildcards.py`), and problems with their
places (`problems.py`). The path of rules and of a request::

    text ── reading ── RuleSet ─┐
                                deciding ── Verdict
    descriptors ── matching ────┘

`reading` and `matching` know neither each other nor a store. `deciding` uses `matching`. May
import the stores and everything below them, never the gate.
"""
