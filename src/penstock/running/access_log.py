"""The observers of a worker's decisions: metrics, and the access log if it is on.

The access log writes a line for each decision. That costs more than the decision, so it is off
by default.

::

    ... info penstock.access refused domain=api rule=api/user keys=["user=42"] ms=0.012 ...
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

from penstock.decision import Decision
from penstock.metrics import Hashed, Recorder
from penstock.metrics.labels import Pair, plain
from penstock.rules.deciding.plan import Plan
from penstock.rules.deciding.verdict import Verdict
from penstock.running.settings import Settings
from penstock.service.service import Observer

OFF, REFUSED, ALL = "off", "refused", "all"
WHICH = (OFF, REFUSED, ALL)
MOST_KEYS = 10  # of one request

logger = logging.getLogger("penstock.access")


class AccessLog(Observer):
    """An observer of a `Service`. It logs at level info.

    ``which``: ``"refused"``, ``"all"`` or ``"off"``. ``sample``: the fraction of them that is
    logged, above 0 and at most 1. ``format_key``: how keys are shown, `plain` or `Hashed`.
    """

    def __init__(
        self,
        which: str = OFF,
        sample: float = 1.0,
        *,
        format_key: Callable[[Sequence[Pair]], str] = plain,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if which not in WHICH:
            raise ValueError(f"an access log is one of {', '.join(WHICH)}, not {which!r:.50}")
        if isinstance(sample, bool) or not isinstance(sample, (int, float)) or not 0 < sample <= 1:
            raise ValueError(f"sample is a number above 0 and at most 1, not {sample!r:.50}")
        self._which = which
        self._sample = sample
        self._format_key = format_key
        self._chance = chance

    def decided(self, domain: str, verdict: Verdict, seconds: float) -> None:
        if self._which == OFF or (verdict.allowed and self._which == REFUSED):
            return
        if self._sample < 1 and self._chance() >= self._sample:
            return
        if logger.isEnabledFor(logging.INFO):
            outcome = "allowed" if verdict.allowed else "refused"
            fields = fields_of(domain, verdict, seconds, self._format_key)
            logger.info(outcome, extra={"fields": fields})


def fields_of(
    domain: str, verdict: Verdict, seconds: float, format_key: Callable[[Sequence[Pair]], str]
) -> dict[str, Any]:
    """What a line says about a decision."""
    statuses = verdict.statuses
    fields: dict[str, Any] = {
        "domain": domain,
        "keys": [format_key(status.pairs) for status in statuses[:MOST_KEYS]],
        "ms": round(seconds * 1e3, 3),
    }
    if len(statuses) > MOST_KEYS:
        fields["keys_left_out"] = len(statuses) - MOST_KEYS
    if verdict.rule is not None:
        fields["rule"] = verdict.rule.id
    if verdict.decision is not None:
        fields["limit"] = str(verdict.decision.limit)
        fields["remaining"] = verdict.decision.shown_remaining()
        if verdict.decision.degraded:
            fields["degraded"] = True
    if not verdict.allowed:
        fields["retry_after"] = verdict.retry_after
        fields["reason"] = next((s.reason for s in statuses if not s.allowed), "")
    return fields


def observer_for(settings: Settings, recorder: Recorder, salt: bytes | None) -> Observer:
    """Without an access log, the recorder alone, which is faster."""
    if settings.access_log == "off":
        return recorder
    format_key = plain if salt is None else Hashed(salt)
    log = AccessLog(settings.access_log, settings.access_sample, format_key=format_key)
    return ObserverPair(recorder, log)


class ObserverPair:
    """Two observers as one."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self._first = first
        self._second = second

    def decided(self, domain: str, verdict: Verdict, seconds: float) -> None:
        self._first.decided(domain, verdict, seconds)
        self._second.decided(domain, verdict, seconds)

    def planned(self, plan: Plan, decisions: list[Decision], seconds: float) -> None:
        self._first.planned(plan, decisions, seconds)
        self._second.planned(plan, decisions, seconds)
