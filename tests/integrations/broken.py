"""Stores that are never there."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import StoreError
from penstock.stores.base import Counters, Store


class NeverThere(Counters):
    def hit(self, key: str, cost: int) -> Any:
        raise StoreError("gone")


class ElsewhereNever(NeverThere):
    async def submit(self, verb: str, *args: Any) -> Any:
        await asyncio.sleep(0)
        return self.hit("k", 1)


class Broken(Store):
    def make_counters(self, limit: Any) -> Counters:
        return NeverThere(limit, None)


class BrokenElsewhere(Store):
    """Coroutines hear of it only when they await the answer."""

    waits = True

    def make_counters(self, limit: Any) -> Counters:
        return ElsewhereNever(limit, None)
