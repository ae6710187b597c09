"""AdaptiveLimit: what all strategies share, which is bounds, windows and a whole number.

A strategy is told of every run that ended, collects runs over a short window of time, and
then works out its limit anew. It reads no clock, takes no lock and starts nothing: whoever
enforces the limit (`ConcurrencyLimiter`, `AdaptiveRate`) calls `record` under its own lock.

Three rules hold for all of them:

- **A run that began before the limit was cut for slowness is not counted.** It ran beside
  too many others, and that has been paid for. Without this rule one slow moment cuts twice.
- **A limit that was not used does not grow.** If never more than half of it ran at once,
  that all went well says nothing about twice as many.
- **A dropped run is judged at once**, without waiting for the window to end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from penstock.durations import Duration, parse_duration
from penstock.errors import LimitError

DEFAULT_INITIAL = 20
DEFAULT_MOST = 1_000
MOST = 10**9
# Fewer runs than these say too little; a window waits for them.
ENOUGH = 10


class AdaptiveLimit(ABC):
    """How many may run at once (or per period, in an `AdaptiveRate`), as load allows.

    - ``initial``: where it starts
    - ``least``, ``most``: it never leaves these bounds
    - ``window``: how long runs are collected before the limit is worked out anew

    ``for_rates`` says whether it also makes sense of requests per period.
    """

    for_rates: ClassVar[bool] = False

    def __init__(
        self, *, initial: int | None, least: int, most: int, window: Duration = 0.5
    ) -> None:
        self._least = _whole(least, "least")
        self._most = _whole(most, "most")
        if self._least > self._most:
            raise LimitError(f"least {least} is above most {most}")
        self._chosen_start = initial is not None
        if initial is None:
            initial = min(max(DEFAULT_INITIAL, least), most)
        if not self._least <= _whole(initial, "initial") <= self._most:
            raise LimitError(f"initial {initial} is not from least {least} to most {most}")
        self._size = float(initial)
        self._window = parse_duration(window, "window")
        self._since = 0  # runs that began before this time are not counted
        self._latest = 0
        self._began: int | None = None
        self._runs = 0
        self._peak = 0

    @property
    def limit(self) -> int:
        """The limit now."""
        return int(self._size)

    @property
    def least(self) -> int:
        """It never goes below this."""
        return self._least

    @property
    def most(self) -> int:
        """It never goes above this."""
        return self._most

    def record(self, duration_ns: int, running: int, dropped: bool, now: int) -> None:
        """One run ended.

        How long it took, how many ran when it began (itself included), whether it was
        dropped (it failed for want of capacity: a time-out, a refusal), and when it ended.
        """
        if now < self._latest:  # the clock stepped back
            self._since = min(self._since, now)
            if self._began is not None and now < self._began:
                self._restart()
        self._latest = now
        if now - duration_ns < self._since:
            return
        if self._began is None:
            self._began = now
        self._runs += 1
        self._peak = max(self._peak, running)
        if dropped:
            self._judge_drop(now)
            self._restart()
            return
        self._collect(duration_ns)
        if now - self._began >= self._window and self._runs >= ENOUGH:
            self._judge(now)
            self._restart()

    def cap(self, most: int) -> None:
        """Lower ``most``; a limit whose start nobody chose starts there."""
        self._most = max(self._least, min(self._most, most))
        self._size = float(self._most) if not self._chosen_start else min(self._size, self._most)

    @property
    def _used(self) -> bool:
        return 2 * self._peak >= self.limit

    def _restart(self) -> None:
        self._began = None
        self._runs = 0
        self._peak = 0
        self._forget()

    def _grow_to(self, size: float) -> None:
        self._size = min(max(self._size, size), float(self._most))

    def _cut_to(self, size: float, now: int | None) -> None:
        """With ``now``, only runs that begin later are counted from here on."""
        self._size = max(min(self._size, size), float(self._least))
        if now is not None:
            self._since = now

    @abstractmethod
    def _collect(self, duration: int) -> None:
        """Keep what the window needs of a run that was not dropped."""

    @abstractmethod
    def _forget(self) -> None:
        """The window is over."""

    @abstractmethod
    def _judge(self, now: int) -> None:
        """A window has ended with enough runs."""

    @abstractmethod
    def _judge_drop(self, now: int) -> None:
        """A run was dropped."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.limit} of {self._least} to {self._most}>"


class Mean:
    """The mean duration of a window's runs."""

    def __init__(self) -> None:
        self._sum = 0
        self._count = 0

    def add(self, duration: int) -> None:
        self._sum += duration
        self._count += 1

    def clear(self) -> None:
        self._sum = self._count = 0

    @property
    def value(self) -> float:
        """At least one nanosecond: others divide by it."""
        return max(1.0, self._sum / self._count)


def _whole(value: object, what: str) -> int:
    if type(value) is not int or not 1 <= value <= MOST:
        raise LimitError(f"{what} is a whole number from 1 to {MOST}, not {value!r}")
    return value


def between(value: object, what: str, low: float, high: float, example: str) -> float:
    """A number strictly between two others, or an error that shows a right one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low < value < high:
        raise LimitError(
            f"{what} is a number between {low:g} and {high:g}, such as {example}, not {value!r}"
        )
    return float(value)
