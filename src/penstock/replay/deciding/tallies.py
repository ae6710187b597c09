"""What a replay counts: for each rule its requests, refusals and keys, and when they came."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.rules.model import Rule

SECOND = 1_000_000_000
BINS_MOST = 16384


@dataclass(slots=True)
class _KeyStat:
    asked: int = 0
    refused: int = 0
    first: int = 0
    last: int = 0
    gaps2: float = 0.0
    assets: int = 0
    errors: int = 0
    agent: int = 0
    agents: int = 0
    paths: int = 0
    hours: int = 0


class PureTally:
    """As `_decider.Tally`, for the slow way."""

    def __init__(self) -> None:
        self._stats: list[_KeyStat] = []
        self._bins: list[list[int]] = []
        self.asked = self.refused = 0
        self.width = SECOND
        self.start = -1

    @property
    def keys(self) -> int:
        return len(self._stats)

    def new_row(self) -> int:
        self._stats.append(_KeyStat())
        return len(self._stats) - 1

    def note(
        self, row: int, now: int, refused: bool, agent: int, path: int, asset: bool, status: int
    ) -> None:
        stat = self._stats[row]
        self.asked += 1
        if stat.asked == 0:
            stat.first, stat.agent = now, agent
        else:
            stat.gaps2 += ((now - stat.last) * 1e-9) ** 2
        stat.last = now
        stat.asked += 1
        stat.assets += asset
        stat.errors += 400 <= status < 500
        stat.agents |= 1 << (agent & 31)
        stat.paths |= 1 << (path & 31)
        stat.hours |= 1 << (now // (3600 * SECOND) % 24)
        if self.start < 0:
            self.start = now - now % SECOND
        at = max(0, (now - self.start) // self.width)
        while at >= BINS_MOST:
            self._bins += [[0, 0]] * (len(self._bins) % 2)
            pairs = zip(self._bins[::2], self._bins[1::2], strict=True)
            self._bins = [[a[0] + b[0], a[1] + b[1]] for a, b in pairs]
            self.width *= 2
            at = (now - self.start) // self.width
        while len(self._bins) <= at:
            self._bins.append([0, 0])
        self._bins[at][0] += 1
        if refused:
            self.refused += 1
            stat.refused += 1
            self._bins[at][1] += 1

    def timeline(self) -> list[tuple[int, int]]:
        return [(asked, refused) for asked, refused in self._bins]

    def touched(self) -> int:
        return sum(1 for stat in self._stats if stat.refused)

    def top(self, most: int, by_refused: bool = True) -> list[int]:
        rows = [
            (stat.refused if by_refused else stat.asked, -row)
            for row, stat in enumerate(self._stats)
        ]
        return [-row for count, row in heapq.nlargest(most, rows) if count]

    def stat(self, row: int) -> tuple[Any, ...]:
        stat = self._stats[row]
        return tuple(getattr(stat, name) for name in _KeyStat.__slots__)

    def asked_by_key(self) -> list[int]:
        return [stat.asked for stat in self._stats]


@dataclass(frozen=True, slots=True)
class KeyTally:
    """What one key asked of one rule, and how it behaved.

    ``agents`` and ``paths`` are estimates of how many different ones it had, good up to about
    60; ``gap_variation`` is the coefficient of variation of the time between its requests.
    """

    key: str
    asked: int
    refused: int
    first: int
    last: int
    gap_variation: float | None
    asset_share: float
    error_share: float
    agent: str | None
    agents: int
    paths: int
    hours: int  # of the 24 hours of a day, those in which it asked

    @property
    def rate(self) -> float:
        """Requests a second while it was active."""
        seconds = (self.last - self.first) / SECOND
        return (self.asked - 1) / seconds if seconds > 0 and self.asked > 1 else 0.0


def key_tally(stat: tuple[Any, ...], key: str, agent: str | None) -> KeyTally:
    asked, refused, first, last, gaps2, assets, errors, _, agents, paths, hours = stat
    variation = None
    if asked >= 10 and last > first:
        mean = (last - first) / SECOND / (asked - 1)
        variation = math.sqrt(max(0.0, gaps2 / (asked - 1) - mean * mean)) / mean
    return KeyTally(
        key, asked, refused, first, last, variation, assets / asked if asked else 0.0,
        errors / asked if asked else 0.0, agent, _estimate(agents), _estimate(paths),
        hours.bit_count(),
    )  # fmt: skip


def _estimate(bits: int) -> int:
    """How many different numbers set these of 32 bits, probably."""
    used = bits.bit_count()
    return used if used < 3 else round(-32 * math.log(1 - min(used, 31.5) / 32))


@dataclass(slots=True)
class RuleTally:
    """A rule and what it did. ``key(row)`` names a key, ``agent(number)`` a user agent."""

    rule: Rule
    tally: Any  # a Tally or a PureTally
    key: Callable[[int], str]
    agent: Callable[[int], str | None]

    def top(self, most: int, *, by_refused: bool = True) -> list[KeyTally]:
        """The keys with the most refusals, or the most requests."""
        out = []
        for row in self.tally.top(most, by_refused):
            stat = self.tally.stat(row)
            out.append(key_tally(stat, self.key(row), self.agent(stat[7])))
        return out


@dataclass(slots=True)
class Outcome:
    """What became of all requests."""

    requests: int = 0
    allowed: int = 0
    refused: int = 0
    ambiguous: int = 0
    unmatched: int = 0
    first: int = 0
    last: int = 0
    way: str = "fast"
    rules: list[RuleTally] = field(default_factory=list)
