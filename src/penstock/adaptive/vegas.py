"""Vegas: as many as can run with only a few of them waiting inside the service.

Of each window, take the mean response time ``rtt``; ``base`` is the smallest of them:

::

    queue = ceil(limit * (1 - base / rtt))       how many of them must be waiting
    digits = max(1, log10(limit))

    a run was dropped, or queue > beta * digits:    limit -= digits
    queue <= digits, and the limit was used:        limit += beta * digits
    queue < alpha * digits, and it was used:        limit += digits

Regimes. *Below capacity*: no queue, and the limit grows in large steps. *At capacity*: it
settles where between alpha and beta runs (times digits) wait, which keeps the service busy
and adds little latency. *Slower for good*: after a deployment, say, every run takes longer,
with or without a queue, and all of it would be taken for a queue. So base is measured anew:
every ``probe_every`` the limit is lowered for one window, to 3/4 of those that do not wait, and
the mean of runs that began in that window is the new base.
The queue is gone by then, so a base is never measured behind one: simply forgetting
the old base, as is often done, raises it a little each time under an overload that lasts.
"""

from __future__ import annotations

import math

from penstock.adaptive.base import DEFAULT_MOST, AdaptiveLimit, Mean
from penstock.durations import Duration, parse_duration
from penstock.errors import LimitError

PROBE = 0.75


class Vegas(AdaptiveLimit):
    """Keeps a handful of runs waiting inside the service; needs no target.

    - ``alpha``, ``beta``: it grows below and shrinks above so many waiting, times log10
    - ``probe_every``: how often the response time without a queue is measured anew
    - ``initial``, ``least``, ``most``, ``window``: as in every `AdaptiveLimit`
    """

    def __init__(
        self,
        *,
        alpha: int = 3,
        beta: int = 6,
        probe_every: Duration = 10.0,
        initial: int | None = None,
        least: int = 1,
        most: int = DEFAULT_MOST,
        window: Duration = 0.2,
    ) -> None:
        super().__init__(initial=initial, least=least, most=most, window=window)
        if type(alpha) is not int or type(beta) is not int or not 1 <= alpha < beta:
            raise LimitError(
                "alpha and beta are whole numbers of at least 1, alpha the smaller one, such as"
                f" 3 and 6, not {alpha!r} and {beta!r}"
            )
        self._alpha, self._beta = alpha, beta
        self._probe_every = parse_duration(probe_every, "probe_every")
        self._probed_at: int | None = None
        self._before_probe: float | None = None
        self._base = math.inf
        self._mean = Mean()

    def _collect(self, duration: int) -> None:
        self._mean.add(duration)

    def _forget(self) -> None:
        self._mean.clear()

    def _judge(self, now: int) -> None:
        rtt = self._mean.value
        if self._probed_at is None or now < self._probed_at:
            self._probed_at = now
        if self._before_probe is not None:
            self._base = rtt
            self._size = self._before_probe
            self._before_probe = None
            self._probed_at = now
            return
        self._base = min(self._base, rtt)
        queue = math.ceil(self._size * (1 - self._base / rtt))
        if now - self._probed_at >= self._probe_every and queue > 0:
            self._before_probe = self._size
            self._cut_to(PROBE * (self._size - queue), now)
            return
        digits = self._digits
        if queue > self._beta * digits:
            self._cut_to(self._size - digits, now)
        elif self._used and queue <= digits:
            self._grow_to(self._size + self._beta * digits)
        elif self._used and queue < self._alpha * digits:
            self._grow_to(self._size + digits)

    def _judge_drop(self, now: int) -> None:
        if self._before_probe is None:
            self._cut_to(self._size - self._digits, now)

    @property
    def _digits(self) -> float:
        return max(1.0, math.log10(self._size))
