"""AIMD: as many as can run while the slowest of them stay quick enough.

Of each window, take a quantile q of the response times (p99, of a fair sample):

::

    q > target, or a run was dropped:   limit = limit * backoff            (cut)
    else, if the limit was used:        limit = limit * 2                  (slow start)
                                        limit = limit + step               (after a first cut)

    used:  2 * running >= limit at least once in the window

Regimes. *Starting*: the limit doubles each window until the first slow one, so that it finds
any capacity in a few seconds. *At work*: it grows evenly until it is slow, is cut to a half,
and grows again: a saw whose teeth lie between half and all of what the target allows. While
the target is at least twice the time of an unloaded service, half of that still keeps the
service fully busy, so the saw costs latency but no throughput. *Idle*: nothing changes. *Out
of reach*: a run that is slow even when alone is not made quicker by any limit, and the limit
goes down to ``least``; so the target must be well above that, and ``least`` worth having.

The step is the square root of the limit unless given: one by one, a limit of a thousand would
take minutes to come back from a cut, and a fixed share of it would not be additive.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from penstock.adaptive.base import DEFAULT_MOST, AdaptiveLimit, between
from penstock.adaptive.reservoir import Reservoir
from penstock.durations import Duration, parse_duration
from penstock.errors import LimitError

SAMPLE = 512


class AIMD(AdaptiveLimit):
    """Keeps a quantile of response times below ``target``; the one to start with.

    - ``target``: seconds, or ``"200ms"``
    - ``quantile``: 0.99 for p99, 0.9 for p90
    - ``backoff``: what is left of the limit after a slow window
    - ``step``: by how much it grows in a window; by default its square root
    - ``chance``: where chance comes from, for samples; give a seeded one to repeat a run
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
        self._quantile = between(quantile, "quantile", 0, 1, "0.99")
        self._backoff = between(backoff, "backoff", 0, 1, "0.5")
        if step is not None and (type(step) is not int or step < 1):
            raise LimitError(f"step is a whole number of at least 1, not {step!r}")
        self._step = step
        self._starting = True
        self._sample = Reservoir(SAMPLE, chance)

    def _collect(self, duration: int) -> None:
        self._sample.add(duration)

    def _forget(self) -> None:
        self._sample.clear()

    def _judge(self, now: int) -> None:
        if self._sample.quantile(self._quantile) > self._target:
            self._cut(now)
        elif self._used:
            self._grow_to(2 * self._size if self._starting else self._size + self._next_step())

    def _judge_drop(self, now: int) -> None:
        self._cut(now)

    def _cut(self, now: int) -> None:
        self._starting = False
        self._cut_to(self._size * self._backoff, now)

    def _next_step(self) -> float:
        return math.sqrt(self._size) if self._step is None else self._step
