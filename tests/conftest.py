"""Shared by all tests: Hypothesis without a clock, Ctrl-C, and which core is tested."""

from __future__ import annotations

import os
import signal

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

# A shell that starts us in the background has us ignore SIGINT, and so would our children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return f"penstock: {_mode.describe()}"
