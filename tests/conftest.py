"""Shared by all tests: Hypothesis without a clock, and the core that is being tested."""

from __future__ import annotations

import hypothesis

from penstock import _mode

hypothesis.settings.register_profile("ours", deadline=None, print_blob=True)
hypothesis.settings.load_profile("ours")


def pytest_report_header() -> str:
    return f"penstock: {_mode.describe()}"
