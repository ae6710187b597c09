"""The pacer of one key: what its answers said, and when the next call may be sent.

There are two kinds of waiting. A *gate* is shut by a refusal that says for how long: nothing is
sent before it opens. A *pace* is our own estimate. It consists of

- the rate that `rate_estimator` derives from what is left of the limits
- *slow start*: at first ``FIRST_CALLS`` may be under way, after a refusal one, and one more with
  each call that passes. An answer that says what is left ends it. A server that is silent for
  ``SILENCE`` is slow rather than strict: the number then doubles, again and again.
- a backoff, after a refusal that does not say for how long

Calls that were sent before a refusal arrived could not know of it. If they are refused as well,
it is news for none of them: only the first one counts as a failed attempt.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from penstock.client.fields import MOST_POLICIES, ServerHints
from penstock.client.rate_estimator import Blind, Policy
from penstock.client.retries import Retries
from penstock.clock import SECOND

FIRST_CALLS = 10
SILENCE = 0.25
MOST_DOUBLINGS = 32


class Pacer:
    """Times are nanoseconds of one clock; used by many threads at once."""

    def __init__(
        self, now: int, learn: bool, chance: Callable[[], float], retries: Retries
    ) -> None:
        self.under_way = 0
        self._learn = learn
        self._chance = chance
        self._retries = retries
        self._lock = threading.Lock()
        self._zero = now  # so that seconds are small, and exact enough as floats
        self.gate = now  # nothing is sent before this time
        self._refused_at = now - 1
        self._last = float("-inf")
        self._luck = 0.5
        self._policies: dict[str, Policy] = {}
        self._blind = Blind(0.0)
        self._most_under_way = float(FIRST_CALLS) if learn else math.inf
        self._heard_at = 0.0
        self._resume_at = 0.0
        self._refusals = 0  # since a call passed; those of calls sent together are one
        self._others_count = not learn

    def due(self, now: int) -> int:
        """When the next call may be sent, by its pace."""
        with self._lock:
            seconds = self._seconds(now)
            at = max(self._resume_at, self._last + (0.5 + self._luck) / self._blind.rate)
            at = max(at, self._slow_start(seconds))
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
            if not self.under_way:
                self._heard_at = seconds
            self._luck = self._chance()
            self.under_way += 1

    def lost(self) -> None:
        """A call ended without an answer."""
        with self._lock:
            self.under_way -= 1

    def passed(self, now: int, sent: int, hints: ServerHints) -> None:
        """A call sent at ``sent`` was answered, and was not refused."""
        with self._lock:
            self.under_way -= 1
            if self._learn:
                self._refusals = 0
                self._heard_at = self._seconds(now)
                self._note(self._heard_at, self._seconds(sent), hints, True)
                self._blind.passed()
                known = any(standing.quota and standing.window for standing in hints.standings)
                self._most_under_way = math.inf if known else self._most_under_way + 1

    def refused(self, now: int, sent: int, hints: ServerHints) -> bool:
        """A call sent at ``sent`` was refused; whether that counts as a failed attempt."""
        with self._lock:
            self.under_way -= 1
            after = hints.retry_after or 0.0
            first = sent >= self._refused_at
            spread = 0.0
            if self._learn:
                self._heard_at = self._seconds(now)
                self._note(self._heard_at, self._seconds(sent), hints, False)
                if first:
                    self._slow_down(self._heard_at, hints)
                spread = self._spread(after)
            if first:
                self._refused_at = now
            opens = now + round((after + self._chance() * spread) * SECOND)
            if after:
                self.gate = max(self.gate, opens)
            return first or self._others_count

    def _slow_start(self, now: float) -> float:
        """When one more call may be under way."""
        if self.under_way < self._most_under_way:
            return now
        doublings = math.floor(math.log2(self.under_way / self._most_under_way)) + 1
        return self._heard_at + SILENCE * min(doublings, MOST_DOUBLINGS)

    def _slow_down(self, now: float, hints: ServerHints) -> None:
        # If nothing passes, to send it all again would only do harm.
        self._others_count = self._refusals > 0
        self._refusals += 1
        self._most_under_way = 1.0
        for policy in self._policies.values():
            policy.refused()
        if not hints.standings:
            self._blind.refused(now, hints.retry_after or 0.0)
        if not hints.retry_after:
            self._resume_at = now + self._retries.backoff(self._refusals, self._chance())

    def _spread(self, after: float) -> float:
        """The seconds over which calls that were refused together should spread."""
        paces = [policy.spacing for policy in self._policies.values()]
        return min(max(paces, default=0.0), after)

    def _note(self, now: float, sent: float, hints: ServerHints, passed: bool) -> None:
        for standing in hints.standings:
            policy = self._policies.pop(standing.name, None) or Policy(standing, now)
            policy.learn(standing, now, sent, passed)
            self._policies[standing.name] = policy  # the latest is last
        while len(self._policies) > MOST_POLICIES:
            del self._policies[next(iter(self._policies))]

    def idle(self, now: int) -> bool:
        """Whether it can be forgotten without losing anything that matters now."""
        return not self.under_way and now >= self.gate and self.due(now) <= now

    def _seconds(self, now: int) -> float:
        return (now - self._zero) / SECOND
