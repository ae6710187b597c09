"""Shared by all tests: Hypothesis without a clock, and the core that is being tested."""

from __future__ import annotations

import os

import hypothesis

from penstock import _mode

# `make soak` asks for more than the default hundred.
hypothesis.settings.register_profile(
    "ours",
    deadline=None,
    print_blob=True,
    max_examples=int(os.environ.get("PENSTOCK_EXAMPLES", "100")),
)
hypothesis.settings.load_profile("ours")


def pytest_report_header() -> str:
    return f"penstock: {_mode.describe()}"
