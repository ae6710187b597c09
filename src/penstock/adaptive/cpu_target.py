"""CPUTarget: as many as keep the processor near a given load.

Each ``window``, read how busy the processor was:

::

    load  = (1 - smoothing) * load + smoothing * reading
    limit = limit * clamp(target / load, 1 - step, 1 + step)      (growing: only when used)

Regimes. *Busy*: what runs and the load are about in proportion, so target / load is about
the factor by which the limit is wrong; bounded, so that one odd reading moves it by a tenth
at most. *Near the target* (within 2 %): left alone, so that it does not hunt. *Idle*: the
load is low but the limit is not used, and does not grow. *Not the processor's fault* (all
wait for a database): the load stays low whatever runs, and the limit grows to ``most``; take
a strategy that looks at response times there.

A dropped run says nothing about the processor, but something is short: one step down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.adaptive.base import DEFAULT_MOST, AdaptiveLimit, between
from penstock.adaptive.cpu import default_reader
from penstock.durations import Duration

logger = logging.getLogger("penstock.adaptive")

CLOSE_ENOUGH = 0.02
LOWEST_LOAD = 0.001


class CPUTarget(AdaptiveLimit):
    """Keeps the processor near ``target``, which is a part: 0.7 for 70 %.

    - ``reader``: a function that returns how busy the processor was since it was last
      called, from 0 to 1; by default `SystemCPU`, or `ProcessCPU` where there is no
      ``/proc/stat``
    - ``step``: by which part the limit may change in a window, at most
    - ``smoothing``: how much a new reading weighs
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
        self._target = between(target, "target", 0, 1, "0.7 for 70 %")
        self._step = between(step, "step", 0, 1, "0.1")
        self._smoothing = between(smoothing, "smoothing", 0, 1, "0.5")
        self._reader = default_reader() if reader is None else reader
        self._load: float | None = None
        self._reader()  # readings are of the time since the last one: here begins the first

    def _collect(self, duration: int) -> None:
        pass

    def _forget(self) -> None:
        pass

    def _judge(self, now: int) -> None:
        try:
            reading = min(1.0, max(0.0, self._reader()))
        except Exception:  # a reader that broke must not break the request that happened to ask
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

    def _judge_drop(self, now: int) -> None:
        self._cut_to(self._size * (1 - self._step), now)
