"""What watches the decisions of a worker: metrics, and the access log if it is on."""

from __future__ import annotations

from penstock.decision import Decision
from penstock.metrics import Hashed, Recorder
from penstock.metrics.labels import plain
from penstock.rules.deciding.plan import Plan
from penstock.rules.deciding.verdict import Verdict
from penstock.running.access_log import AccessLog
from penstock.running.settings import Settings
from penstock.service.service import Observer


def observer_for(settings: Settings, recorder: Recorder, salt: bytes | None) -> Observer:
    """The recorder alone, which is faster, unless there is an access log."""
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
