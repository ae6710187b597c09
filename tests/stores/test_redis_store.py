"""RedisStore against a real server: the suite of every store, keys, coalescing, cancelling."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

pytest.importorskip("redis")

from stores.redis_time import ToldStore

from penstock.testing import FakeClock, StoreConformance


class TestConformance(StoreConformance):
    @pytest.fixture(autouse=True)
    def _server(self, redis_url: str, prefix: str) -> Iterator[None]:
        self.url = redis_url
        self.names = (f"{prefix}-{number}" for number in itertools.count())
        self.stores: list[ToldStore] = []
        yield
        for store in self.stores:
            store.close()

    def make_store(self, clock: FakeClock) -> ToldStore:
        store = ToldStore(self.url, clock, prefix=next(self.names))
        self.stores.append(store)
        return store
