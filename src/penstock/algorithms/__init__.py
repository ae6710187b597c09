"""The rules by which limits decide: one file each, pure, the same for every store."""

from penstock.algorithms.base import Algorithm
from penstock.algorithms.fixed_window import FixedWindow
from penstock.algorithms.lockout import Lockout
from penstock.algorithms.sliding_log import SlidingLog
from penstock.algorithms.sliding_window import SlidingWindow
from penstock.algorithms.soft import Soft
from penstock.algorithms.token_bucket import TokenBucket
from penstock.limit import Limit

_RULES: dict[str, type[Algorithm]] = {
    "token_bucket": TokenBucket,
    "leaky_bucket": TokenBucket,
    "fixed_window": FixedWindow,
    "sliding_window": SlidingWindow,
    "sliding_log": SlidingLog,
}


def build(limit: Limit) -> Algorithm:
    """The rule of ``limit``, its options around it."""
    rule = _RULES[limit.algorithm](limit)
    if limit.soft is not None:
        rule = Soft(rule)
    if limit.lockout_ns:
        rule = Lockout(rule)
    return rule
