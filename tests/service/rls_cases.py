"""What Envoy's rate limit service answers, as data for every wire.

::

    for case in CASES:
        gate, clock = make_gate(case)
        run(case, clock, lambda request: ...)    # -> a dict, or an int for an error
"""

from __future__ import annotations

from service.rls_case import Case, Message, make_gate, run
from service.rls_counting import COUNTING, UNITS
from service.rls_debits import DEBITS
from service.rls_matching import MATCHING
from service.rls_special import ERRORS, HEADERS, OVERRIDES, OWN_LIMITS, SEVERAL

__all__ = ["CASES", "Case", "Message", "make_gate", "run"]

CASES = [
    *UNITS, *COUNTING, *MATCHING, *SEVERAL, *OVERRIDES, *ERRORS, *OWN_LIMITS, *HEADERS, *DEBITS,
]  # fmt: skip
assert len({case.name for case in CASES}) == len(CASES)
