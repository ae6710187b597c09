"""Gradient2: compares recent response times with their long-term average.

``short`` is the mean response time of a window; ``long`` is its exponential average over some
hundred windows:

::

    if long > 2 * short:        long = 0.95 * long
    gradient = clamp(tolerance * long / short, 0.5, 1)        0.5 if a run was dropped
    wanted   = limit * gradient + queue
    limit    = (1 - smoothing) * limit + smoothing * wanted   (only when the limit was used)

Regimes. *Below capacity*: short is about equal to long, the gradient is 1, and the limit grows
by ``smoothing * queue`` per window. *Above capacity*: short rises. Beyond ``tolerance`` times
long, the gradient lowers the limit until about ``queue`` runs wait in the service. *Recovery*
from a long overload: long is far above short and decays quickly.

It needs no target, but it adapts to a lasting overload: long rises towards short, and the limit
rises with it. Set ``most`` where that would hurt, or use AIMD.
"""

from __future__ import annotations

from penstock.adaptive.base import DEFAULT_MOST, AdaptiveLimit, check_fraction, check_positive
from penstock.durations import Duration
from penstock.errors import LimitError

STEEPEST = 0.5


class Gradient2(AdaptiveLimit):
    """Follows response times relative to their long-term average; needs no target.

    - ``tolerance``: how many times the long-term average a response may take; at least 1
    - ``queue``: how many runs may wait in the service's own queue
    - ``smoothing``: the weight of the new limit against the current one
    - ``memory``: the number of windows in the long-term average
    - ``initial``, ``least``, ``most``, ``window``: as in every `AdaptiveLimit`
    """

    def __init__(
        self,
        *,
        tolerance: float = 1.5,
        queue: int = 4,
        smoothing: float = 0.2,
        memory: int = 600,
        initial: int | None = None,
        least: int = 1,
        most: int = DEFAULT_MOST,
        window: Duration = 1.0,
    ) -> None:
        super().__init__(initial=initial, least=least, most=most, window=window)
        if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or tolerance < 1:
            raise LimitError(f"tolerance is a number of at least 1, not {tolerance!r}")
        self._tolerance = tolerance
        self._queue = check_positive(queue, "queue")
        self._smoothing = check_fraction(smoothing, "smoothing", "0.2")
        self._memory = check_positive(memory, "memory")
        self._windows = 0
        self._long = 0.0

    def _update(self, now: int) -> None:
        short = self._mean_ns
        # The first windows have equal weight: otherwise the very first would dominate for minutes.
        self._windows = min(self._windows + 1, self._memory)
        self._long += (short - self._long) / self._windows
        if self._long > 2 * short:
            self._long *= 0.95
        if self._used:
            self._follow(min(1.0, max(STEEPEST, self._tolerance * self._long / short)), now)

    def _on_drop(self, now: int) -> None:
        self._follow(STEEPEST, now)

    def _follow(self, gradient: float, now: int) -> None:
        wanted = self._size * gradient + self._queue
        size = (1 - self._smoothing) * self._size + self._smoothing * wanted
        if size > self._size:
            self._grow_to(size)
        else:
            self._cut_to(size, now)
