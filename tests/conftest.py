"""Shared by all tests: Hypothesis without a clock, Ctrl-C, real time, and which core is tested."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import hypothesis
import pytest

from penstock import _mode
from realtime import repeating
from realtime.witness import Witness

# `make soak` asks for more than the default hundred.
hypothesis.settings.register_profile(
    "ours",
    deadline=None,
    print_blob=True,
    max_examples=int(os.environ.get("PENSTOCK_EXAMPLES", "100")),
    # A change is judged by the same examples every time. New ones are found elsewhere.
    derandomize="CI" in os.environ,
)
hypothesis.settings.load_profile("ours")

# A shell that starts us in the background has us ignore SIGINT, and so would our children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return f"penstock: {_mode.describe()}"


# What was repeated, and why.
_repeated: list[str] = []
_witness = pytest.StashKey[Witness]()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    with Witness() as session.config.stash[_witness]:
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not repeating.depends_on_time(item):
        return None
    repeating.run_until_undisturbed(item, nextitem, item.config.stash[_witness])
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    reasons = [why for name, why in report.user_properties if name == repeating.REPEATED]
    _repeated.extend(f"{report.nodeid}: {why}" for why in reasons)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _repeated:
        terminalreporter.section("repeated, because the machine was busy")
    for line in _repeated:
        terminalreporter.write_line(line)
