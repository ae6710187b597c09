"""AdaptiveRate: a rate limit that adapts to load without changing its limit in the store.

A store has separate counters for each limit, so a limit that changed would start from zero with
each change. Instead the limit is constant, and the *cost* of a request changes:

::

    limit = (amount * units) per period            the full rate, in small units; constant
    cost  = ceil(units * amount / current)         what one request costs now
    current = the strategy's limit                 requests per period, at most amount

At the full rate a request costs ``units``; at a quarter of it, four times as many. The cost is
never below ``units``, so the full rate is never exceeded. Processes that share a store share the
limit, even if each computes its own cost.
"""

from __future__ import annotations

import threading

from penstock.adaptive.base import AdaptiveLimit
from penstock.clock import MONOTONIC, SECOND, Clock
from penstock.decision import Decision
from penstock.errors import LimitError
from penstock.limit_options import ALGORITHMS, Soft
from penstock.limits import Limit, as_limit

FINEST = 1_000
# How much of the rate may be lost because a unit takes a whole number of nanoseconds.
LOSS = 0.001
# The used rate is measured over the time of this many requests at full rate, at least a second.
COUNTED = 10


class AdaptiveRate:
    """``limiter.hit(key, rate.limit, cost=rate.cost)``: at most ``most``, less under load.

    Report each finished request with `record`. Do not share the strategy with another limit. The
    rate starts at ``most``, unless the strategy has an ``initial``.
    """

    def __init__(
        self, most: Limit | str, strategy: AdaptiveLimit, *, clock: Clock | None = None
    ) -> None:
        full = as_limit(most)
        if full.amount == 0:
            raise LimitError(f"{full} refuses everything, and there is no rate to adapt")
        if not isinstance(strategy, AdaptiveLimit):
            raise TypeError(f"a strategy is an AdaptiveLimit such as AIMD(0.2), not {strategy!r}")
        if not strategy.for_rates:
            raise LimitError(
                f"{type(strategy).__name__} reckons with how many run at once: for a rate, take"
                " AIMD or CPUTarget"
            )
        if clock is not None and not isinstance(clock, Clock):
            raise TypeError(f"a clock has now(), sleep() and sleep_async(); {clock!r} does not")
        self._full = full
        self._units = _units(full)
        self.limit = _in_units(full, self._units)
        """The limit to pass to the limiter; it never changes."""
        # A request that costs more than the burst would never be allowed.
        least = -(-full.amount // full.burst)
        if strategy.least > full.amount:
            raise LimitError(f"the strategy's least {strategy.least} is above {full}")
        if strategy.least < least:
            raise LimitError(
                f"with a burst of {full.burst}, {full} cannot go below {least} per period: give"
                f" the strategy least={least}, or the limit a larger burst"
            )
        strategy.cap(full.amount)
        self._strategy = strategy
        self._clock = MONOTONIC if clock is None else clock
        self._lock = threading.Lock()
        self._span = max(SECOND, COUNTED * full.interval_ns)
        self._counted_since = self._clock.now()
        self._count = 0
        self._last_count = 0

    @property
    def current(self) -> int:
        """The current rate, in requests per period."""
        return self._strategy.limit

    @property
    def cost(self) -> int:
        """What one request costs now."""
        return -(-self._units * self._full.amount // self._strategy.limit)

    def requests(self, decision: Decision) -> int:
        """How many requests ``decision`` leaves, at the current cost."""
        return decision.remaining // self.cost

    def record(self, seconds: float, dropped: bool = False) -> None:
        """Record a request that ended: how long it took, and whether it was dropped."""
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
            raise ValueError(f"seconds is a number of at least 0, not {seconds!r}")
        with self._lock:
            now = self._clock.now()
            self._strategy.record(round(seconds * SECOND), self._used_rate(now), dropped, now)

    def _used_rate(self, now: int) -> int:
        """The rate that was actually used, in requests per period."""
        passed = now - self._counted_since
        if not 0 <= passed < self._span:
            self._last_count = self._count if 0 <= passed < 2 * self._span else 0
            self._counted_since, self._count = now, 0
        self._count += 1
        return max(self._count, self._last_count) * self._full.period_ns // self._span

    def __repr__(self) -> str:
        return f"<AdaptiveRate: {self.current} of {self._full}>"


def _units(full: Limit) -> int:
    """The number of units in a request: the most that keep the rate accurate enough."""
    if full.algorithm == "sliding_log":
        raise LimitError(
            "a sliding_log would keep a timestamp for each small unit: use a token_bucket or a"
            " sliding_window"
        )
    if full.warm_up_ns:
        raise LimitError("warm_up changes the price, too: leave it out of an AdaptiveRate")
    if "burst" not in ALGORITHMS[full.algorithm]:
        return FINEST
    for units in range(FINEST, 1, -1):
        amount = full.amount * units
        interval = -(-full.period_ns // amount)
        if interval * amount <= (1 + LOSS) * full.interval_ns * full.amount:
            return units
    return 1


def _in_units(full: Limit, units: int) -> Limit:
    has_burst = "burst" in ALGORITHMS[full.algorithm]
    soft = full.soft
    return full.changed(
        amount=full.amount * units,
        burst=full.burst * units if has_burst else None,
        initial=None if full.initial is None else full.initial * units,
        debt=full.debt * units or None,
        soft=None if soft is None else Soft(soft.overrun * units, soft.grace_ns),
    )
