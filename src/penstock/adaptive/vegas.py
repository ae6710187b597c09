"""Vegas: estimates how many runs wait inside the service, and keeps that number small.

``rtt`` is the mean response time of a window; ``base`` is the smallest of these means:

::

    queue = ceil(limit * (1 - base / rtt))       estimated runs that wait
    digits = max(1, log10(limit))

    a run was dropped, or queue > beta * digits:    limit -= digits
    queue <= digits, and the limit was used:        limit += beta * digits
    queue < alpha * digits, and it was used:        limit += digits

Regimes. *Below capacity*: there is no queue, and the limit grows in large steps. *At capacity*:
the limit settles where between alpha and beta runs (times digits) wait, which keeps the service
busy and adds little latency. *Permanently slower*, after a deployment, for example: every run
takes longer, and the difference looks like a queue. So base is measured again: every
``probe_every``, the limit is lowered for one window to 3/4 of the runs that do not wait, and the
mean of the runs that began in that window is the new base. By then the queue is empty, so it does
not affect base. Discarding the old base without a probe, as is often done, raises it a little
each time during a lasting overload.
"""

from __future__ import annotations

import math

from penstock.adaptive.base import DEFAULT_MOST, AdaptiveLimit
from penstock.durations import Duration, parse_duration
from penstock.errors import LimitError

PROBE = 0.75


class Vegas(AdaptiveLimit):
    """Lets only a few runs wait inside the service; needs no target.

    - ``alpha``, ``beta``: the limit grows if fewer than ``alpha * log10(limit)`` runs wait, and
      shrinks if more than ``beta * log10(limit)`` do
    - ``probe_every``: how often the response time without a queue is measured
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

    def _update(self, now: int) -> None:
        rtt = self._mean_ns
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

    def _on_drop(self, now: int) -> None:
        if self._before_probe is None:
            self._cut_to(self._size - self._digits, now)

    @property
    def _digits(self) -> float:
        return max(1.0, math.log10(self._size))
