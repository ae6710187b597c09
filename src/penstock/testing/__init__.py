"""For tests of your own: a clock that you move, and the suite that a store must pass."""

from penstock.testing.clock import FakeClock
from penstock.testing.conformance import StoreConformance

__all__ = ["FakeClock", "StoreConformance"]
