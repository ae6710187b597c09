"""MemoryStore: the conformance suite, and what only it promises."""

from penstock import MemoryStore
from penstock.testing import FakeClock, StoreConformance


class TestMemoryStore(StoreConformance):
    def make_store(self, clock: FakeClock) -> MemoryStore:
        return MemoryStore(clock=clock)
