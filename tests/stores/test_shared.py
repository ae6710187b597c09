"""SharedMemoryStore: the conformance suite, and what only it promises."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import SharedMemoryStore
from penstock.testing import FakeClock, StoreConformance


class TestSharedMemoryStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> Iterator[None]:
        self.folder = tmp_path
        self.made = 0
        yield

    def make_store(self, clock: FakeClock) -> SharedMemoryStore:
        self.made += 1
        return SharedMemoryStore(
            self.folder / f"{self.made}.store", max_keys=2_000, bytes_per_key=512, clock=clock
        )
