"""LiveLog: logs the decisions on requests that an operator is looking for, while he is.

::

    penstock admin log on --match user=42 --for 10m
    ... info penstock.decisions refused domain=api keys=["user=42"] rule=api/user ...

The pairs are a switch: they expire, and new workers get them. Lines are written at any log level,
with keys as in all other logs, and the last of them can be read through the admin API. While
nothing is looked for, it does not observe decisions, and costs nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.clock import SECOND, WALL, Clock
from penstock.decision import Decision
from penstock.limiter import Limiter
from penstock.metrics.labels import Pair, plain
from penstock.rules.deciding.plan import Plan
from penstock.rules.deciding.switches import Switches
from penstock.rules.deciding.verdict import Verdict
from penstock.running.access_log import ObserverPair, fields_of
from penstock.running.masks import Masks
from penstock.service.service import Observer
from penstock.stores.memory import MemoryStore

MOST_KEPT = 500  # decisions of a worker that can be read
MOST_LINES = "100/second"  # of a worker: the others are counted
MICROSECOND = 1_000

logger = logging.getLogger("penstock.decisions")


class LiveLog(Observer):
    """``others`` observes decisions in any case. ``observe`` makes a service use an observer."""

    def __init__(
        self,
        worker: str,
        switches: Switches,
        others: Observer,
        observe: Callable[[Observer], None],
        *,
        format_key: Callable[[Sequence[Pair]], str] = plain,
        clock: Clock = WALL,
    ) -> None:
        self._worker = worker
        self._switches = switches
        self._others = others
        self._observe = observe
        self._format_key = format_key
        self._clock = clock
        self._masks = Masks()
        self._lines = Limiter(MOST_LINES, MemoryStore(1, clock))
        self._kept: deque[dict[str, Any]] = deque(maxlen=MOST_KEPT)
        self._number = 0
        self._left_out = 0  # since the last line
        self.left_out = 0
        logger.setLevel(logging.INFO)  # at any log level: an operator asked for it

    def look(self) -> None:
        """The switches have changed: begin or end."""
        wanted = bool(self._switches.state().logged)
        self._observe(ObserverPair(self._others, self) if wanted else self._others)

    def planned(self, plan: Plan, decisions: list[Decision], seconds: float) -> None:
        if self._is_wanted(plan.descriptors):
            self._log(plan.domain, plan.verdict(decisions), seconds)

    def decided(self, domain: str, verdict: Verdict, seconds: float) -> None:
        if self._is_wanted([status.pairs for status in verdict.statuses]):
            self._log(domain, verdict, seconds)

    def _is_wanted(self, descriptors: Sequence[Sequence[Pair]]) -> bool:
        wanted = self._switches.state().logged
        if not wanted:  # they have expired
            self.look()
            return False
        return any(pair in wanted for pairs in descriptors for pair in pairs)

    def _log(self, domain: str, verdict: Verdict, seconds: float) -> None:
        if not self._lines.hit("lines"):
            self._left_out += 1
            self.left_out += 1
            return
        outcome = "allowed" if verdict.allowed else "refused"
        fields = fields_of(domain, verdict, seconds, self._format_key)
        if self._left_out:
            fields["left_out"], self._left_out = self._left_out, 0
        logger.info(outcome, extra={"fields": fields})
        now = self._clock.now()
        # Times, so that the numbers of a worker that is restarted go on.
        self._number = max(self._number + 1, now // MICROSECOND)
        self._kept.append(
            {
                "number": self._number,
                "worker": self._worker,
                "at": now / SECOND,
                "decision": outcome,
                **self._masks.value(fields),
            }
        )

    def rows(self, after: Mapping[str, int]) -> list[dict[str, Any]]:
        """The decisions that are kept, after the number that was read last from each worker."""
        last = after.get(self._worker, 0)
        return [row for row in self._kept if row["number"] > last]
