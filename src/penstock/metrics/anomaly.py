"""AnomalyWatch: detects a sudden jump of refusals against their recent history.

Refusals are counted in windows of ten seconds, for each rule and for all rules together. The
history of the counts x, with a = 1/90 (a quarter of an hour), is::

    mean     += a (x - mean)
    variance += a ((x - mean)^2 - variance)
    sigma     = max(sqrt(variance), sqrt(mean), 1)

Random counts vary by at least sqrt(mean); and the first few refusals of a quiet rule are no
jump, hence 1, and ``least``.

    raised    x > mean + 6 sigma and x >= least, in 2 windows in a row
    cleared   x < mean + 2 sigma, in 3 windows in a row

The two bounds differ so that an alarm does not flap. A count above 3 sigma is learned as
3 sigma: one burst does not hide the next one, yet traffic that regularly comes in bursts is
learned after a while. Nothing is learned while an alarm lasts. After an hour the new level
counts as normal: the alarm is cleared, with ``adopted`` set.

Nothing is raised in the first 5 minutes of a rule, while its history is short.

Median and MAD over an hour would need 360 sorted numbers for each rule. Their advantage,
robustness against outliers, comes from clipping here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.clock import SECOND, WALL, Clock
from penstock.events import Event, Hook, Hooks
from penstock.metrics.snapshot import Snapshot

ALL = "all"

WINDOW = 10
SPAN = 90
WARM_UP = 30
RAISE_SIGMAS, RAISE_WINDOWS = 6.0, 2
CLEAR_SIGMAS, CLEAR_WINDOWS = 2.0, 3
CLIP_SIGMAS = 3.0
LEAST = 20
LONGEST = 360  # windows: one hour


@dataclass(frozen=True, slots=True)
class RefusalsJumped(Event):
    """Refusals by ``rule`` (or by ``all``) are far above their history.

    ``count`` in the last ``window`` seconds, where ``expected`` plus or minus ``sigma`` is
    normal.
    """

    rule: str
    count: float
    expected: float
    sigma: float
    window: float


@dataclass(frozen=True, slots=True)
class RefusalsSettled(Event):
    """Refusals by ``rule`` are back to normal, after ``seconds``.

    ``adopted`` if they did not come down: the new level counts as normal from now on.
    """

    rule: str
    seconds: float
    adopted: bool


class Baseline:
    """The normal level, as learned so far."""

    __slots__ = ("mean", "seen", "variance")

    def __init__(self) -> None:
        self.seen = 0
        self.mean = 0.0
        self.variance = 0.0

    @property
    def sigma(self) -> float:
        return math.sqrt(max(self.variance, self.mean, 1.0))

    def learn(self, count: float) -> None:
        if self.seen >= WARM_UP:
            count = min(count, self.mean + CLIP_SIGMAS * self.sigma)
        self.seen += 1
        # At first the plain mean: each count has the same weight.
        part = max(1 / self.seen, 1 / SPAN)
        off = count - self.mean
        self.mean += part * off
        self.variance += part * (off * (count - self.mean) - self.variance)


class Series:
    """One rule: its normal level, and whether its alarm is raised."""

    __slots__ = ("_in_a_row", "fresh", "lasted", "raised", "total", "usual")

    def __init__(self, total: int) -> None:
        self.total = total
        self.usual = Baseline()
        self.raised = False
        self.fresh = Baseline()  # the level since the alarm was raised
        self.lasted = 0
        self._in_a_row = 0

    def look(self, count: float, least: float) -> bool:
        """Add one window; returns whether it raised or cleared the alarm."""
        usual = self.usual
        if self.raised:
            self.lasted += 1
            self.fresh.learn(count)
            low = count < usual.mean + CLEAR_SIGMAS * usual.sigma
            self._in_a_row = self._in_a_row + 1 if low else 0
            if self._in_a_row < CLEAR_WINDOWS and self.lasted < LONGEST:
                return False
            if self._in_a_row < CLEAR_WINDOWS:
                self.usual = self.fresh
            self.raised = False
            self._in_a_row = 0
            return True
        high = count >= least and count > usual.mean + RAISE_SIGMAS * usual.sigma
        self._in_a_row = self._in_a_row + 1 if high and usual.seen >= WARM_UP else 0
        if self._in_a_row >= RAISE_WINDOWS:
            self.raised, self.fresh, self.lasted, self._in_a_row = True, Baseline(), 0, 0
            return True
        usual.learn(count)
        return False


class AnomalyWatch:
    """Emits an event when refusals jump above their normal level, and when they settle.

    With fewer than ``least`` refusals in a window no alarm is raised. `look` takes the
    result of `Snapshot.refusals`; `run` calls it until it is cancelled.
    """

    def __init__(self, *, least: int = LEAST, clock: Clock = WALL) -> None:
        if type(least) is not int or least < 1:
            raise ValueError(f"least must be a whole number of at least 1, not {least!r:.100}")
        self._least = least
        self._clock = clock
        self._hooks = Hooks()
        self._series: dict[str, Series] = {}
        self._jumps: dict[str, int] = {ALL: 0}
        self._looked_at: int | None = None

    def subscribe(self, hook: Hook) -> None:
        """Call ``hook`` with `RefusalsJumped` and `RefusalsSettled` events."""
        self._hooks.add(hook)

    def unsubscribe(self, hook: Hook) -> None:
        self._hooks.remove(hook)

    @property
    def raised(self) -> list[str]:
        """The rules whose alarm is raised now; ``"all"`` for all together."""
        return sorted(rule for rule, series in self._series.items() if series.raised)

    async def run(self, refusals: Callable[[], Mapping[str, int]]) -> None:
        """Look every ten seconds."""
        while True:
            self.look(refusals())
            await self._clock.sleep_async(WINDOW)

    def look(self, refusals: Mapping[str, int]) -> None:
        """Look at the total refusals by rule. Calling it more often than once a window is fine."""
        now = self._clock.now()
        totals = {**refusals, ALL: sum(refusals.values())}
        if self._looked_at is None or now < self._looked_at:
            # The first call, or the clock was set back: start here.
            self._looked_at = now
            for rule, total in totals.items():
                self._series.setdefault(rule, Series(total)).total = total
            return
        elapsed = (now - self._looked_at) / SECOND
        if elapsed < WINDOW * 0.95:
            return
        self._looked_at = now
        for rule in [rule for rule in self._series if rule not in totals]:
            del self._series[rule]  # the rule was removed
        for rule, total in totals.items():
            series = self._series.get(rule)
            if series is None:
                # A new rule starts at zero.
                series = self._series[rule] = Series(0)
            new, series.total = total - series.total, total
            # Below zero: a process and its counters are gone. A late call sees a longer window.
            if new >= 0 and series.look(new * WINDOW / elapsed, self._least):
                self._emit(rule, series, new * WINDOW / elapsed)

    def _emit(self, rule: str, series: Series, count: float) -> None:
        if series.raised:
            self._jumps[rule] = self._jumps.get(rule, 0) + 1
            usual = series.usual
            self._hooks.emit(
                RefusalsJumped(
                    "refusals", rule, round(count, 1), round(usual.mean, 1),
                    round(usual.sigma, 1), WINDOW,
                )
            )  # fmt: skip
        else:
            seconds = float(series.lasted * WINDOW)
            self._hooks.emit(
                RefusalsSettled("refusals", rule, seconds, series.usual is series.fresh)
            )

    def snapshot(self) -> Snapshot:
        """Its own metrics, to be added to those of the workers."""
        out = Snapshot(self._clock.now())
        for rule, jumps in self._jumps.items():
            series = self._series.get(rule)
            state = int(series is not None and series.raised)
            out.set("penstock_refusals_anomalous", (rule,), state)
            out.set("penstock_anomalies_total", (rule,), jumps)
        return out
