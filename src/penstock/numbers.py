"""limit, remaining and reset: one meaning in every answer, whatever wire it leaves by.

====================== =====================================================================
limit                  the most that can be taken at once: the burst of a bucket, the amount of
                       any other limit; with the window in which that comes back
remaining              whole units that are left; 0 where the request was refused
reset, refused         until the same request would pass; where no waiting helps, as below
reset, nothing left    of a bucket: until it holds one unit
reset, otherwise       until the limit is whole again. A window that is counted from 1970 resets
                       when it ends, also if nothing was used of it
====================== =====================================================================

``remaining`` is never above ``limit``. For fixed windows these are the numbers of Envoy's
service. Times are told in whole seconds, rounded up: a client that waits for so long is never
too early. The last three rows are `Decision.shown_remaining` and `Decision.shown_reset`. Header
fields, ``Retry-After`` among them, are written in `penstock.integrations.deciding.responses`.
"""

from __future__ import annotations

from functools import lru_cache

from penstock.decision import Decision
from penstock.durations import SECOND
from penstock.limits import Limit

_BUCKETS = ("token_bucket", "leaky_bucket")


@lru_cache(4096)
def quota(limit: Limit) -> tuple[int, int]:
    """What can be taken at once, and the nanoseconds in which that comes back."""
    if limit.algorithm in _BUCKETS and limit.amount:
        return limit.burst, -(-limit.burst * limit.period_ns // limit.amount)
    return limit.amount, limit.period_ns


@lru_cache(4096)
def epoch_window(limit: Limit) -> int:
    """The length of its windows, if they are counted from 1970; else 0."""
    is_aligned = limit.algorithm == "fixed_window" and limit.align == "epoch"
    return limit.period_ns if is_aligned else 0


def window_left(window: int, now: int) -> int:
    """Nanoseconds until the end of a window that is counted from 1970."""
    return window - now % window


def reset_of(decision: Decision, now: float) -> int:
    """Whole seconds until the reset; ``now`` is seconds since 1970."""
    after = decision.shown_reset()
    if after <= 0:
        window = epoch_window(decision.limit)
        after = window_left(window, int(now * SECOND)) if window else 0
    return whole_seconds(after)


def whole_seconds(nanoseconds: int) -> int:
    return -(-nanoseconds // SECOND) if nanoseconds > 0 else 0
