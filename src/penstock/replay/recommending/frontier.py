"""The exact trade of rate against burst, for one key.

The smallest burst without a refusal at rate r is b(r) = max over k of (k - r * d[k]), with d[k] the
shortest span of k consecutive requests: convex, falling, and linear between its corners, which
are the upper hull of the points (d[k], k). The table of all d[k] would take n**2 steps. Instead,
one pass at a rate yields the (d, k) that is the maximum there; from the two ends, evaluate at the
slope between two known corners, and go on between them as long as something lies above (Eisner
and Severance). For h corners that takes at most 2h - 1 passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

Corner = tuple[int, int]  # span in nanoseconds, requests in it


def frontier(times: Sequence[int]) -> list[Corner]:
    """The corners, from the shortest span to the longest. Times are in order."""
    if not times:
        return []
    # An endless rate: only requests at one instant need a burst. And a rate of zero.
    first, last = _at(times, 1, 0), _at(times, 0, 1)
    corners = {first, last}
    between = [(first, last)]
    while between:
        one, other = between.pop()
        span, count = other[0] - one[0], other[1] - one[1]
        if span <= 0 or count <= 0:
            continue
        corner = _at(times, count, span)
        # Above the line from one to the other?
        if corner not in corners and corner[1] * span - corner[0] * count > (
            one[1] * span - one[0] * count
        ):
            corners.add(corner)
            between += [(one, corner), (corner, other)]
    return sorted(corners)


def _at(times: Sequence[int], count: int, span: int) -> Corner:
    """The (d, k) that needs the largest burst at a rate of ``count`` per ``span``.

    ``span`` 0 stands for an endless rate.
    """
    backlog = best = 0
    best_corner = (0, 1)
    first = last = times[0]
    requests = 0
    for time in times:
        backlog = max(0, backlog - count * (time - last)) if span else backlog
        if (span and backlog == 0) or (not span and time != last):
            first, requests, backlog = time, 0, 0
        backlog += span or 1
        requests += 1
        last = time
        if backlog > best:
            best, best_corner = backlog, (time - first, requests)
    return best_corner


def burst_at(corners: Sequence[Corner], rate: Fraction) -> Fraction:
    """The smallest burst at a rate, in requests a nanosecond."""
    return max((requests - rate * span for span, requests in corners), default=Fraction(0))
