"""Rules that no request matches are reported in the log, once."""

from __future__ import annotations

import pytest

from penstock.metrics import Snapshot
from penstock.running.rule_watch import RuleWatch


def counted(domain: str, unmatched: int, decided: int = 0, reason: str = "unmatched") -> Snapshot:
    snapshot = Snapshot(0)
    snapshot.set("penstock_without_rule_total", (domain, reason), unmatched)
    snapshot.set("penstock_decisions_total", (domain, f"{domain}/ip", "allowed"), decided)
    return snapshot


@pytest.mark.parametrize(
    ("snapshot", "message"),
    [
        (counted("login", 100), "no request of domain login has matched a rule: 100 desc"),
        (counted("other", 500), "500 descriptors were allowed because they name a domain without"),
        (counted("login", 99), None),
        (counted("login", 5000, decided=1), None),
        (counted("login", 5000, reason="allow list"), None),
    ],
)
def test_which_domains_are_reported(
    snapshot: Snapshot, message: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    watch = RuleWatch()
    watch.look(snapshot)
    watch.look(snapshot)  # the second time, nothing
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (message is not None)
    assert all(each.startswith(message or "") for each in messages)
