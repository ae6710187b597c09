"""`KeyValue` behind the interface of `AsyncKeyValue`, so that one suite tests both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.kv import AsyncKeyValue, Change, KeyValue

PATIENCE = 20.0


class ThreadShell:
    """Every verb in a thread."""

    def __init__(self, where: Any, **options: Any) -> None:
        self.kv = KeyValue(where, **options)
        for name in ("put", "get", "delete", "list", "history", "change", "sync", "status"):
            setattr(self, name, self._in_thread(getattr(self.kv, name)))

    def _in_thread(self, verb: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        def call(*args: Any, **options: Any) -> Awaitable[Any]:
            return asyncio.to_thread(verb, *args, **options)

        return call

    def watch(self, prefix: str = "") -> ThreadWatch:
        return ThreadWatch(self.kv, prefix)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.kv.close)


class ThreadWatch:
    def __init__(self, kv: KeyValue, prefix: str) -> None:
        self._watch = kv.watch(prefix)

    def __aiter__(self) -> ThreadWatch:
        return self

    async def __anext__(self) -> Change:
        change = await asyncio.to_thread(self._watch.next)
        if change is None:
            raise StopAsyncIteration
        return change

    async def batch(self) -> list[Change]:
        return await asyncio.to_thread(self._watch.batch)

    def close(self) -> None:
        self._watch.close()


SHELLS: dict[str, Any] = {"tasks": AsyncKeyValue, "threads": ThreadShell}


class Replica:
    """What a reader of a watch believes: the last state of every key."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self.values: dict[str, Any] = {}
        self.changes: list[Change] = []
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for change in self._watch:
            self.changes.append(change)
            if change.entry is None:
                self.values.pop(change.key, None)
            else:
                self.values[change.key] = change.entry.value

    async def until(self, wanted: dict[str, Any], patience: float = PATIENCE) -> None:
        await until(lambda: self.values == wanted, lambda: (self.values, wanted), patience)

    async def close(self) -> None:
        self._watch.close()
        await asyncio.wait_for(self._task, PATIENCE)


async def until(
    met: Callable[[], bool], what: Callable[[], object] = str, patience: float = PATIENCE
) -> None:
    """Poll for a condition."""
    end = asyncio.get_running_loop().time() + patience
    while not met():
        assert asyncio.get_running_loop().time() < end, what()
        await asyncio.sleep(0.005)
