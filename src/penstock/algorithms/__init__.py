"""Algorithms: pure steps from a key's row, a cost and a time to a decision.

One file for each, the same for every store: the ``.py`` is the algorithm, the ``.pxd`` beside it
adds C types, the ``.lua`` is its twin for Redis. `base.py` is what an algorithm is; `lockout.py`
and `soft.py` wrap another one. `build` makes the algorithm of a limit. May import `limits.py`,
`decision.py` and what they import, never a store. CONTRIBUTING.md lists the steps to add one.
"""

from penstock.algorithms.base import Algorithm
from penstock.algorithms.fixed_window import FixedWindow
from penstock.algorithms.initial_bucket import InitialBucket
from penstock.algorithms.lockout import Lockout
from penstock.algorithms.sliding_log import SlidingLog
from penstock.algorithms.sliding_window import SlidingWindow
from penstock.algorithms.soft import Soft
from penstock.algorithms.stock import Stock
from penstock.algorithms.token_bucket import TokenBucket
from penstock.limits import CLOSED, STOCK, Limit

_ALGORITHMS: dict[str, type[Algorithm]] = {
    "token_bucket": TokenBucket,
    "leaky_bucket": TokenBucket,
    "fixed_window": FixedWindow,
    "sliding_window": SlidingWindow,
    "sliding_log": SlidingLog,
    STOCK: Stock,
}


def build(limit: Limit) -> Algorithm:
    """The rule of ``limit``, its options around it."""
    if limit.amount == 0:
        return TokenBucket(CLOSED)
    if limit.initial is not None:
        return InitialBucket(limit)
    rule = _ALGORITHMS[limit.algorithm](limit)
    if limit.soft is not None:
        rule = Soft(rule)
    if limit.lockout_ns:
        rule = Lockout(rule)
    return rule
