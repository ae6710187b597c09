"""The pacer of one key: what its answers said, and when the next call may be sent.

There are two kinds of waiting. A *gate* is shut by a refusal: nothing is sent before it
opens. A *pace* is our own estimate from what is left: it delays a call, but never fails one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.client.fields import MOST_POLICIES, ServerHints
from penstock.client.rate_estimator import Blind, Policy
from penstock.clock import SECOND


class Pacer:
    """Times are nanoseconds of one clock; used by many threads at once."""

    def __init__(self, now: int, learn: bool, chance: Callable[[], float]) -> None:
        self.under_way = 0
        self._learn = learn
        self._chance = chance
        self._lock = threading.Lock()
        self._zero = now  # so that seconds are small, and exact enough as floats
        self._gate = now
        self._refused_at = now - 1
        self._last = float("-inf")
        self._luck = 0.5
        self._policies: dict[str, Policy] = {}
        self._blind = Blind(0.0)

    @property
    def gate(self) -> int:
        """Nothing is sent before this time."""
        return self._gate

    def due(self, now: int) -> int:
        """When the next call may be sent, by its pace."""
        with self._lock:
            seconds = self._seconds(now)
            at = self._last + (0.5 + self._luck) / self._blind.rate
            for policy in self._policies.values():
                at = max(at, policy.due(seconds, self._last, self.under_way, self._luck))
            return now if at <= seconds else self._zero + round(at * SECOND)

    def leaves(self, now: int) -> None:
        """A call is sent now."""
        with self._lock:
            seconds = self._seconds(now)
            for policy in self._policies.values():
                policy.sent(seconds, self._last, self.under_way)
            self._last = seconds
            self._luck = self._chance()
            self.under_way += 1

    def lost(self) -> None:
        """A call ended without an answer."""
        with self._lock:
            self.under_way -= 1

    def passed(self, now: int, hints: ServerHints) -> None:
        """A call was answered, and was not refused."""
        with self._lock:
            self.under_way -= 1
            if self._learn:
                self._note(self._seconds(now), hints, True)
                self._blind.passed()

    def refused(self, now: int, sent: int, hints: ServerHints) -> None:
        """A call sent at ``sent`` was refused. Calls that were sent together count once."""
        with self._lock:
            self.under_way -= 1
            after = hints.retry_after or 0.0
            first = sent > self._refused_at
            if first:
                self._refused_at = now
            spread = 0.0
            if self._learn:
                self._note(self._seconds(now), hints, False)
                spread = self._slow_down(self._seconds(now), hints, first)
            opens = now + round((after + self._chance() * spread) * SECOND)
            if after:
                self._gate = max(self._gate, opens)

    def _slow_down(self, now: float, hints: ServerHints, first: bool) -> float:
        """The seconds over which calls that were refused together should spread."""
        if first:
            for policy in self._policies.values():
                policy.refused()
            if not hints.standings:
                self._blind.refused(now, hints.retry_after or 0.0)
        paces = [policy.spacing for policy in self._policies.values()]
        return min(max(paces, default=0.0), hints.retry_after or 0.0)

    def _note(self, now: float, hints: ServerHints, passed: bool) -> None:
        for standing in hints.standings:
            policy = self._policies.pop(standing.name, None) or Policy(standing, now)
            policy.learn(standing, now, passed)
            self._policies[standing.name] = policy  # the latest is last
        while len(self._policies) > MOST_POLICIES:
            del self._policies[next(iter(self._policies))]

    def idle(self, now: int) -> bool:
        """Whether it can be forgotten without losing anything that matters now."""
        return not self.under_way and now >= self._gate and self.due(now) <= now

    def _seconds(self, now: int) -> float:
        return (now - self._zero) / SECOND
