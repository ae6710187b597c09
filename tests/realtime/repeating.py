"""Tests that depend on real time are repeated if the machine did not let them run.

Such a test fails for one of two reasons: the code is wrong, or the machine stood still at the
wrong moment. A witness tells which. If it saw no stall, the failure counts at once. If it did,
the attempt is void, and the test runs again.
"""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol

from realtime.witness import Witness

ATTEMPTS = 5
REPEATED = "repeated"
# Here tests talk to real servers and processes.
ROOMS = {
    "admin", "cli", "client", "concurrency", "deploy", "integrations", "kv", "loadgen", "metrics",
    "proxy", "quota", "replay", "running", "service", "stores", "testing", "wires",
}  # fmt: skip


def depends_on_time(item: pytest.Item) -> bool:
    room = item.path.relative_to(item.config.rootpath / "tests").parts[0]
    return room in ROOMS or item.get_closest_marker("realtime") is not None


def run_until_undisturbed(
    item: pytest.Item, nextitem: pytest.Item | None, witness: Witness
) -> None:
    """Run the test and report its last attempt, which tells of those before it."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    void: list[str] = []
    while True:
        before = witness.now()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        failed = [report for report in reports if report.failed]
        # A test that hangs was not disturbed, but stopped by its time-out.
        if not failed or any("from pytest-timeout" in report.longreprtext for report in failed):
            break
        seen = witness.seen().since(before)
        if not seen.disturbed or len(void) + 1 == ATTEMPTS:
            break
        void.append(str(seen))
        item._report_sections.clear()
    for report in reports:
        if void and report.when == "call":
            report.user_properties.append((REPEATED, f"{len(void)} times: {void[-1]}"))
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
