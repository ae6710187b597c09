"""What Envoy's rate limit service answers, as data for every wire.

::

    for case in CASES:
        gate, clock = make_gate(case)
        run(case, clock, lambda request: ...)    # -> a dict, or an int for an error
"""

from __future__ import annotations

from server.rls_case import Case, Message, make_gate, run
from server.rls_counting import COUNTING, UNITS
from server.rls_debits import DEBITS
from server.rls_matching import MATCHING
from server.rls_special import ERRORS, HEADERS, OVERRIDES, OWN_LIMITS, SEVERAL

__all__ = ["CASES", "Case", "Message", "make_gate", "run"]

CASES = [
    *UNITS, *COUNTING, *MATCHING, *SEVERAL, *OVERRIDES, *ERRORS, *OWN_LIMITS, *HEADERS, *DEBITS,
]  # fmt: skip
assert len({case.name for case in CASES}) == len(CASES)
