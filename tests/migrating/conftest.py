"""Other libraries start threads. None of them outlives its test."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_timers_are_left() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):  # of `limits`: it expires keys every 10 ms
            thread.join()
