"""Gradient2: as many as can run without response times rising above their own past.

Of each window, take the mean response time ``short``; ``long`` is its exponential average
over some hundred windows:

::

    if long > 2 * short:        long = 0.95 * long
    gradient = clamp(tolerance * long / short, 0.5, 1)        0.5 if a run was dropped
    wanted   = limit * gradient + queue
    limit    = (1 - smoothing) * limit + smoothing * wanted   (only when the limit was used)

Regimes. *Below capacity*: short is about long, the gradient is 1 and the limit grows by
``smoothing * queue`` a window. *Above it*: short rises, and beyond ``tolerance`` times long
the gradient shrinks the limit until the queue it allows is about ``queue``. *Recovering*
from a long overload: long is far above short and is brought down quickly.

It needs no target, and its blind spot comes with that: under an overload that lasts, long
creeps up to short, and the limit with it. Give ``most`` where that would hurt, or take AIMD.
"""

from __future__ import annotations

from penstock.adaptive.base import DEFAULT_MOST, AdaptiveLimit, Mean, between
from penstock.durations import Duration
from penstock.errors import LimitError

STEEPEST = 0.5


class Gradient2(AdaptiveLimit):
    """Follows response times relative to their long-term average; needs no target.

    - ``tolerance``: how far above its past a response time may rise; at least 1
    - ``queue``: how many may stand in the service's own queue
    - ``smoothing``: how much of the way to the wanted limit a window goes
    - ``memory``: over how many windows the long-term average is taken
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
        for name, value in (("queue", queue), ("memory", memory)):
            if type(value) is not int or value < 1:
                raise LimitError(f"{name} is a whole number of at least 1, not {value!r}")
        self._tolerance = tolerance
        self._queue = queue
        self._smoothing = between(smoothing, "smoothing", 0, 1, "0.2")
        self._memory = memory
        self._windows = 0
        self._long = 0.0
        self._mean = Mean()

    def _collect(self, duration: int) -> None:
        self._mean.add(duration)

    def _forget(self) -> None:
        self._mean.clear()

    def _judge(self, now: int) -> None:
        short = self._mean.value
        # The first windows count alike, so that the very first does not weigh for minutes.
        self._windows = min(self._windows + 1, self._memory)
        self._long += (short - self._long) / self._windows
        if self._long > 2 * short:
            self._long *= 0.95
        if self._used:
            self._follow(min(1.0, max(STEEPEST, self._tolerance * self._long / short)), now)

    def _judge_drop(self, now: int) -> None:
        self._follow(STEEPEST, now)

    def _follow(self, gradient: float, now: int) -> None:
        wanted = self._size * gradient + self._queue
        size = (1 - self._smoothing) * self._size + self._smoothing * wanted
        if size > self._size:
            self._grow_to(size)
        else:
            self._cut_to(size, now)
