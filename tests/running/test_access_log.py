"""What observes the decisions of a worker."""

from __future__ import annotations

from typing import Any

from penstock.metrics import Recorder
from penstock.running.access_log import ObserverPair, observer_for
from penstock.running.settings import Settings
from penstock.service.service import Observer


def test_metrics_alone_are_observed_the_quick_way() -> None:
    recorder = Recorder()
    assert observer_for(Settings(), recorder, None) is recorder


def test_an_access_log_observes_beside_them() -> None:
    recorder = Recorder()
    observer = observer_for(Settings(access_log="all"), recorder, b"salt")
    assert isinstance(observer, ObserverPair)


def test_both_of_a_pair_see_a_decision() -> None:
    seen: list[Any] = []

    class Noting(Observer):
        def decided(self, domain: str, verdict: Any, seconds: float) -> None:
            seen.append((self, domain, verdict, seconds))

    first, second = Noting(), Noting()
    verdict: Any = object()
    ObserverPair(first, second).decided("api", verdict, 0.5)
    assert seen == [(first, "api", verdict, 0.5), (second, "api", verdict, 0.5)]
