"""AIMD: additive increase, multiplicative decrease, by a quantile of response times.

For each window, take a quantile q of the response times (p99, of a uniform sample):

::

    q > target, or a run was dropped:   limit = limit * backoff            (cut)
    else, if the limit was used:        limit = limit * 2                  (slow start)
                                        limit = limit + step               (after a first cut)

    used:  2 * running >= limit at least once in the window

Regimes. *Starting*: the limit doubles each window until the first slow one, so it reaches any
capacity within seconds. *Steady*: it grows linearly until responses are slow, is halved, and
grows again: a sawtooth between half and all of what the target allows. While the target is at
least twice the response time of an unloaded service, half the limit still keeps the service
fully busy, so the sawtooth costs latency but no throughput. *Idle*: nothing changes. *Target
out of reach*: if a run is slow even on its own, no limit helps, and the limit falls to
``least``. So choose a target well above that response time, and a useful ``least``.

By default the step is the square root of the limit. With steps of one, a limit of a thousand
would take minutes to recover from a cut; a fixed share of the limit would not be additive.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from penstock.adaptive.base import DEFAULT_MOST, AdaptiveLimit, check_fraction, check_positive
from penstock.adaptive.reservoir import Reservoir
from penstock.durations import Duration, parse_duration

SAMPLE = 512


class AIMD(AdaptiveLimit):
    """Keeps a quantile of response times below ``target``. Start with this strategy.

    - ``target``: seconds, or ``"200ms"``
    - ``quantile``: 0.99 for p99, 0.9 for p90
    - ``backoff``: the factor applied to the limit after a slow window
    - ``step``: how much the limit grows in a window; by default its square root
    - ``chance``: the random numbers for the sample; pass a seeded function for repeatable runs
    - ``initial``, ``least``, ``most``, ``window``: as in every `AdaptiveLimit`
    """

    for_rates = True

    def __init__(
        self,
        target: Duration,
        *,
        quantile: float = 0.99,
        backoff: float = 0.5,
        step: int | None = None,
        initial: int | None = None,
        least: int = 1,
        most: int = DEFAULT_MOST,
        window: Duration = 0.5,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(initial=initial, least=least, most=most, window=window)
        self._target = parse_duration(target, "target")
        self._quantile = check_fraction(quantile, "quantile", "0.99")
        self._backoff = check_fraction(backoff, "backoff", "0.5")
        self._step = None if step is None else check_positive(step, "step")
        self._starting = True
        self._sample = Reservoir(SAMPLE, chance)

    def _on_run(self, duration_ns: int) -> None:
        self._sample.add(duration_ns)

    def _restart(self) -> None:
        super()._restart()
        self._sample.clear()

    def _update(self, now: int) -> None:
        if self._sample.quantile(self._quantile) > self._target:
            self._on_drop(now)  # a slow window has the same effect
        elif self._used:
            step = math.sqrt(self._size) if self._step is None else self._step
            self._grow_to(2 * self._size if self._starting else self._size + step)

    def _on_drop(self, now: int) -> None:
        self._starting = False
        self._cut_to(self._size * self._backoff, now)
