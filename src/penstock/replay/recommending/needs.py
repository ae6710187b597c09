"""What keys need, which of them look automated, and what a limit would have refused."""

from __future__ import annotations

import bisect
import heapq
import math
import operator
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.replay.behaviour import looks_automated
from penstock.replay.deciding.tallies import KeyTally, RuleTally, key_tally
from penstock.replay.recommending import arrivals
from penstock.replay.recommending.recommendation import Consequence

LOOKED_AT = 2000  # keys whose behaviour is looked at: those that need most


class Behaviour:
    """Which keys look automated, of those that need most."""

    def __init__(self, tally: RuleTally, whole: tuple[array[int], array[int]]) -> None:
        self._tally = tally
        self._known: dict[int, bool] = {}
        self._starts = whole[0]

    def is_automated(self, row: int) -> bool:
        if row not in self._known:
            self._known[row] = looks_automated(self.key(row))
        return self._known[row]

    def key(self, row: int) -> KeyTally:
        stat = self._tally.tally.stat(row)
        return key_tally(stat, self._tally.key(row), self._tally.agent(stat[7]))

    def refused_keys(self, refusals: array[int], most: int) -> list[KeyTally]:
        """Those that are refused most, and how often."""
        rows = heapq.nlargest(
            most, arrivals.rows_from(refusals, 1), key=lambda row: (refusals[row], -row)
        )
        return [replace(self.key(row), refused=refusals[row]) for row in rows]

    def busiest(self, needs: array[int]) -> KeyTally:
        """The key that needs most and does not look automated."""
        most = self.people(needs)
        rows = [row for row in range(len(needs)) if needs[row] == most]
        return self.key(next((row for row in rows if not self.is_automated(row)), rows[0]))

    def people(self, needs: array[int]) -> int:
        """The most that a key needs which does not look automated."""
        looked = 0
        for count in (64, LOOKED_AT):  # mostly it is among the first
            least = heapq.nlargest(count, needs)[-1] if needs else 0
            above = arrivals.rows_from(needs, max(1, least))
            above.sort(key=needs.__getitem__, reverse=True)
            for row in above[looked:count]:
                if not self.is_automated(row):
                    return needs[row]
            if len(above) <= count:
                return 0
            looked = min(count, len(above))
        return needs[above[LOOKED_AT]]


def per_key(function: Any, grouped: tuple[array[int], array[int]], argument: int) -> array[int]:
    starts, times = grouped
    out: array[int] = array("q", bytes(8 * (len(starts) - 1)))
    function(starts, times, argument, out)
    return out


def refusals_of(grouped: tuple[array[int], array[int]], interval: int, burst: int) -> array[int]:
    """For each key the requests that a token bucket refuses."""
    out: array[int] = array("q", bytes(8 * (len(grouped[0]) - 1)))
    arrivals.refused_by_bucket(*grouped, interval, burst, out)
    return out


def consequence_of(starts: array[int], refusals: array[int], behaviour: Behaviour) -> Consequence:
    refused = arrivals.rows_from(refusals, 1)
    return Consequence(
        starts[len(starts) - 1],
        sum(refusals),
        sum(map(operator.lt, starts, starts[1:])),
        len(refused),
        sum(1 for row in refused[:LOOKED_AT] if behaviour.is_automated(row)),
    )


def in_order(needs: array[int]) -> list[int]:
    """What those keys need that asked at all, from the least to the most."""
    ordered = sorted(needs)
    return ordered[bisect.bisect_right(ordered, 0) :]


def quantile_of(ordered: Sequence[int], q: float) -> int:
    return ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))]
