"""AdaptiveRate: a rate limit that follows load, without a change of anything in the store.

A store counts by the limit that it was given, so a limit that changes would begin to count
anew with each change. So the limit stays, and the *price* of a request moves:

::

    limit = (amount * units) per period            the most, in small units; never changes
    cost  = ceil(units * amount / current)         what one request takes of it now
    current = what the strategy says               requests per period, at most amount

At full rate a request costs ``units``; at a quarter of it, four times as many. A cost is never
below ``units``, so whatever the strategy says, the first limit holds. Processes that share a
store may each have a price of their own and still share one limit.
"""

from __future__ import annotations

import threading

from penstock.adaptive.base import AdaptiveLimit
from penstock.clock import MONOTONIC, SECOND, Clock
from penstock.decision import Decision
from penstock.errors import LimitError
from penstock.limit import ALGORITHMS, Limit, Soft, as_limit

FINEST = 1_000
# How much of the rate may be lost because a unit takes a whole number of nanoseconds.
LOSS = 0.001
# Over so many requests at full rate, and at least a second, it is seen what rate was used.
COUNTED = 10


class AdaptiveRate:
    """``limiter.hit(key, rate.limit, cost=rate.cost)``: at most ``most``, less under load.

    Tell it how runs end with `record`. The strategy is its own from then on; it begins at
    the full rate, unless the strategy was given ``initial``.
    """

    def __init__(
        self, most: Limit | str, strategy: AdaptiveLimit, *, clock: Clock | None = None
    ) -> None:
        whole = as_limit(most)
        if not isinstance(strategy, AdaptiveLimit):
            raise TypeError(f"a strategy is an AdaptiveLimit such as AIMD(0.2), not {strategy!r}")
        if not strategy.for_rates:
            raise LimitError(
                f"{type(strategy).__name__} reckons with how many run at once: for a rate, take"
                " AIMD or CPUTarget"
            )
        if clock is not None and not isinstance(clock, Clock):
            raise TypeError(f"a clock has now(), sleep() and sleep_async(); {clock!r} does not")
        self._whole = whole
        self._units = _units(whole)
        self.limit = _in_units(whole, self._units)
        """The limit to give to the limiter; it never changes."""
        # A request that costs more than all that may come at once would never be allowed.
        least = -(-whole.amount // whole.burst)
        if strategy.least > whole.amount:
            raise LimitError(f"the strategy's least {strategy.least} is above {whole}")
        if strategy.least < least:
            raise LimitError(
                f"with a burst of {whole.burst}, {whole} cannot go below {least} per period: give"
                f" the strategy least={least}, or the limit a larger burst"
            )
        strategy.cap(whole.amount)
        self._strategy = strategy
        self._clock = MONOTONIC if clock is None else clock
        self._lock = threading.Lock()
        self._span = max(SECOND, COUNTED * whole.interval_ns)
        self._began = self._clock.now()
        self._count = 0
        self._before = 0

    @property
    def current(self) -> int:
        """Requests per period, as load allows now."""
        return self._strategy.limit

    @property
    def cost(self) -> int:
        """What one request costs now."""
        return -(-self._units * self._whole.amount // self._strategy.limit)

    def requests(self, decision: Decision) -> int:
        """How many more requests ``decision`` leaves room for, at the present price."""
        return decision.remaining // self.cost

    def record(self, seconds: float, dropped: bool = False) -> None:
        """A request that was let through ended: how long it took, and whether it was dropped."""
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
            raise ValueError(f"seconds is a number of at least 0, not {seconds!r}")
        with self._lock:
            now = self._clock.now()
            self._strategy.record(round(seconds * SECOND), self._used(now), dropped, now)

    def _used(self, now: int) -> int:
        """The rate that was really used, in requests per period."""
        passed = now - self._began
        if not 0 <= passed < self._span:
            self._before = self._count if 0 <= passed < 2 * self._span else 0
            self._began, self._count = now, 0
        self._count += 1
        return max(self._count, self._before) * self._whole.period_ns // self._span

    def __repr__(self) -> str:
        return f"<AdaptiveRate: {self.current} of {self._whole}>"


def _units(whole: Limit) -> int:
    """Into how many units a request is divided: as many as the rate loses little by."""
    if whole.algorithm == "sliding_log":
        raise LimitError(
            "a sliding_log would keep a timestamp for each small unit: use a token_bucket or a"
            " sliding_window"
        )
    if whole.warm_up_ns:
        raise LimitError("warm_up changes the price, too: leave it out of an AdaptiveRate")
    if "burst" not in ALGORITHMS[whole.algorithm]:
        return FINEST
    for units in range(FINEST, 1, -1):
        amount = whole.amount * units
        interval = -(-whole.period_ns // amount)
        if interval * amount <= (1 + LOSS) * whole.interval_ns * whole.amount:
            return units
    return 1


def _in_units(whole: Limit, units: int) -> Limit:
    has_burst = "burst" in ALGORITHMS[whole.algorithm]
    soft = whole.soft
    return whole.changed(
        amount=whole.amount * units,
        burst=whole.burst * units if has_burst else None,
        debt=whole.debt * units or None,
        soft=None if soft is None else Soft(soft.overrun * units, soft.grace_ns),
    )
