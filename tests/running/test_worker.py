"""What a worker is made of."""

from __future__ import annotations

from typing import Any

from penstock.metrics import Recorder
from penstock.running.settings import Settings
from penstock.running.worker import Both, _observer


def test_metrics_alone_are_told_the_quick_way() -> None:
    recorder = Recorder()
    assert _observer(Settings(), recorder, None) is recorder


def test_an_access_log_is_told_beside_them() -> None:
    recorder = Recorder()
    observer = _observer(Settings(access_log="all"), recorder, b"salt")
    assert isinstance(observer, Both)


def test_both_are_told() -> None:
    seen: list[Any] = []

    class One:
        def decided(self, domain: str, verdict: Any, seconds: float) -> None:
            seen.append((self, domain, verdict, seconds))

    first, second = One(), One()
    verdict: Any = object()
    Both(first, second).decided("api", verdict, 0.5)
    assert seen == [(first, "api", verdict, 0.5), (second, "api", verdict, 0.5)]
