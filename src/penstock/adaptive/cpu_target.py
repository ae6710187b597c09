"""CPUTarget: the limit that keeps the CPU near a target load.

In each ``window``, read how busy the CPU was:

::

    load  = (1 - smoothing) * load + smoothing * reading
    limit = limit * clamp(target / load, 1 - step, 1 + step)      (growing: only when used)

Regimes. *Busy*: load is roughly proportional to concurrency, so target / load is roughly the
factor by which the limit is off. The factor is clamped, so a single outlier changes the limit by
at most a tenth. *Near the target* (within 2 %): no change, to avoid oscillation. *Idle*: the load
is low, but the limit is not used and does not grow. *Not CPU-bound* (runs wait for a database,
for example): the load stays low and the limit grows to ``most``; use a strategy based on response
times instead.

A dropped run says nothing about the CPU, but some resource is short: the limit goes one step
down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.adaptive.base import DEFAULT_MOST, AdaptiveLimit, check_fraction
from penstock.adaptive.cpu import default_reader
from penstock.durations import Duration

logger = logging.getLogger("penstock.adaptive")

CLOSE_ENOUGH = 0.02
LOWEST_LOAD = 0.001


class CPUTarget(AdaptiveLimit):
    """Keeps CPU load near ``target``, a fraction: 0.7 for 70 %.

    - ``reader``: a function that returns the CPU load since its last call, from 0 to 1; by
      default `SystemCPU`, or `ProcessCPU` where there is no ``/proc/stat``
    - ``step``: the largest change in a window, as a fraction of the limit
    - ``smoothing``: the weight of a new reading
    - ``initial``, ``least``, ``most``, ``window``: as in every `AdaptiveLimit`
    """

    for_rates = True

    def __init__(
        self,
        target: float = 0.7,
        *,
        reader: Callable[[], float] | None = None,
        step: float = 0.1,
        smoothing: float = 0.5,
        initial: int | None = None,
        least: int = 1,
        most: int = DEFAULT_MOST,
        window: Duration = 0.5,
    ) -> None:
        super().__init__(initial=initial, least=least, most=most, window=window)
        self._target = check_fraction(target, "target", "0.7 for 70 %")
        self._step = check_fraction(step, "step", "0.1")
        self._smoothing = check_fraction(smoothing, "smoothing", "0.5")
        self._reader = default_reader() if reader is None else reader
        self._load: float | None = None
        self._reader()  # the next reading covers the time from here on

    def _update(self, now: int) -> None:
        try:
            reading = min(1.0, max(0.0, self._reader()))
        except Exception:  # a failing reader must not fail the request
            logger.exception("the CPU could not be read; the limit stays %d", self.limit)
            return
        if self._load is None:
            self._load = reading
        self._load += self._smoothing * (reading - self._load)
        factor = self._target / max(LOWEST_LOAD, self._load)
        if abs(factor - 1) <= CLOSE_ENOUGH:
            return
        factor = min(1 + self._step, max(1 - self._step, factor))
        if factor < 1:
            self._cut_to(self._size * factor, None)
        elif self._used:
            self._grow_to(self._size * factor)

    def _on_drop(self, now: int) -> None:
        self._cut_to(self._size * (1 - self._step), now)
