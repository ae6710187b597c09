"""The pytest plugin: fixtures for applications that have limits.

pytest imports this at every start, wherever Penstock is installed. It lies outside of the package
because importing anything from `penstock` imports all of it, which only tests that use a fixture
should pay for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing import FakeClock


@pytest.fixture
def penstock_clock() -> Iterator[FakeClock]:
    """A clock that stands still, for all memory stores without a clock of their own."""
    from penstock.testing import FakeClock, use_clock

    clock = FakeClock()
    with use_clock(clock):
        yield clock


@pytest.fixture
def limits_off() -> Iterator[None]:
    """No limit refuses anything during the test."""
    from penstock.testing import allow_all

    with allow_all():
        yield


@pytest.fixture
def fresh_limits() -> Iterator[None]:
    """The test begins without the counts of other tests, and leaves none."""
    from penstock.testing import forget_counts

    forget_counts()
    yield
    forget_counts()
