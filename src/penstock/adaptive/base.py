"""AdaptiveLimit: the base class of all strategies, with bounds and measurement windows.

A strategy records every run that ends. It collects runs over a short window of time, then
updates its limit. It reads no clock, takes no lock and starts no thread: the limiter that
enforces the limit (`ConcurrencyLimiter`, `AdaptiveRate`) calls `record` under its own lock.

Three rules apply to every strategy:

- **Runs that began before the limit was cut are ignored.** They were slow because of the old
  limit. If they counted, one slow moment would cut the limit twice.
- **An unused limit does not grow.** If less than half of it was ever in use, fast responses
  do not show that twice as many would be fast, too.
- **A dropped run takes effect at once**, without waiting for the window to end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from penstock.durations import Duration, parse_duration
from penstock.errors import LimitError

DEFAULT_INITIAL = 20
DEFAULT_MOST = 1_000
MOST = 10**9
# A window lasts until it has at least this many runs.
ENOUGH = 10


class AdaptiveLimit(ABC):
    """A concurrency limit (or a rate, in an `AdaptiveRate`) that adapts to load.

    - ``initial``: the first limit
    - ``least``, ``most``: the bounds of the limit
    - ``window``: how long runs are collected before the limit is updated

    ``for_rates`` says whether the strategy also works for requests per period.
    """

    for_rates: ClassVar[bool] = False

    def __init__(
        self, *, initial: int | None, least: int, most: int, window: Duration = 0.5
    ) -> None:
        self._least = _check_bound(least, "least")
        self._most = _check_bound(most, "most")
        if self._least > self._most:
            raise LimitError(f"least {least} is above most {most}")
        self._has_initial = initial is not None
        if initial is None:
            initial = min(max(DEFAULT_INITIAL, least), most)
        if not self._least <= _check_bound(initial, "initial") <= self._most:
            raise LimitError(f"initial {initial} is not from least {least} to most {most}")
        self._size = float(initial)
        self._window = parse_duration(window, "window")
        self._cut_at = 0  # runs that began before this time are ignored
        self._recorded_at = 0
        self._window_began: int | None = None
        self._runs = self._peak = self._total_ns = 0

    @property
    def limit(self) -> int:
        """The current limit."""
        return int(self._size)

    @property
    def least(self) -> int:
        """The lower bound of the limit."""
        return self._least

    @property
    def most(self) -> int:
        """The upper bound of the limit."""
        return self._most

    def record(self, duration_ns: int, running: int, dropped: bool, now: int) -> None:
        """Record a run that ended at ``now``.

        ``running`` is how many runs there were when it began, itself included. ``dropped``
        means that it failed for lack of capacity, with a time-out or a refusal, for example.
        """
        if now < self._recorded_at:  # the clock stepped back
            self._cut_at = min(self._cut_at, now)
            if self._window_began is not None and now < self._window_began:
                self._restart()
        self._recorded_at = now
        if now - duration_ns < self._cut_at:
            return
        if self._window_began is None:
            self._window_began = now
        self._runs += 1
        self._peak = max(self._peak, running)
        if dropped:
            self._on_drop(now)
            self._restart()
            return
        self._total_ns += duration_ns
        self._on_run(duration_ns)
        if now - self._window_began >= self._window and self._runs >= ENOUGH:
            self._update(now)
            self._restart()

    def cap(self, most: int) -> None:
        """Lower ``most``. Without ``initial``, the limit starts there."""
        self._most = max(self._least, min(self._most, most))
        self._size = min(self._size, self._most) if self._has_initial else float(self._most)

    @property
    def _used(self) -> bool:
        return 2 * self._peak >= self.limit

    @property
    def _mean_ns(self) -> float:
        """The mean duration of the window's runs; at least 1, so that it can be divided by."""
        return max(1.0, self._total_ns / self._runs)

    def _restart(self) -> None:
        """Begin a new window."""
        self._window_began = None
        self._runs = self._peak = self._total_ns = 0

    def _grow_to(self, size: float) -> None:
        self._size = min(max(self._size, size), float(self._most))

    def _cut_to(self, size: float, now: int | None) -> None:
        """With ``now``, runs that began before it are ignored from here on."""
        self._size = max(min(self._size, size), float(self._least))
        if now is not None:
            self._cut_at = now

    def _on_run(self, duration_ns: int) -> None:  # noqa: B027 (most need only the mean)
        """Called for each run of the window that was not dropped."""

    @abstractmethod
    def _update(self, now: int) -> None:
        """Called when a window has ended with enough runs."""

    @abstractmethod
    def _on_drop(self, now: int) -> None:
        """Called when a run was dropped."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.limit} of {self._least} to {self._most}>"


def _check_bound(value: object, name: str) -> int:
    if type(value) is not int or not 1 <= value <= MOST:
        raise LimitError(f"{name} is a whole number from 1 to {MOST}, not {value!r}")
    return value


def check_positive(value: object, name: str) -> int:
    """``value``, if it is a whole number of at least 1."""
    if type(value) is not int or value < 1:
        raise LimitError(f"{name} is a whole number of at least 1, not {value!r}")
    return value


def check_fraction(value: object, name: str, example: str) -> float:
    """``value``, if it is a number between 0 and 1, exclusive."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise LimitError(f"{name} is a number between 0 and 1, such as {example}, not {value!r}")
    return float(value)
