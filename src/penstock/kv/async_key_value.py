"""AsyncKeyValue: the verbs of `KeyValue` as coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Self

from penstock.durations import Duration
from penstock.errors import StoreError
from penstock.kv.cancelling import cancel
from penstock.kv.entry import (
    Change,
    Entry,
    Read,
    Status,
    Value,
    check_key,
    check_prefix,
    check_read,
)
from penstock.kv.follower import Follower
from penstock.kv.operations import BaseKeyValue, Changes
from penstock.kv.watching import AsyncWatch

logger = logging.getLogger("penstock.kv")


class AsyncKeyValue(BaseKeyValue):
    """`KeyValue` for tasks of one event loop. The first local read or watch starts a task."""

    _follower: Follower | None = None
    _task: asyncio.Task[None] | None = None

    async def put(
        self,
        key: str,
        value: Value,
        *,
        ttl: Duration | None = None,
        expect: int | None = None,
        who: str | None = None,
        why: str = "",
    ) -> Entry:
        """See `KeyValue.put`. If the task is cancelled meanwhile, the value may be written."""
        return await self.backend.run_async(self._put(key, value, ttl, expect, who, why))

    async def get(self, key: str, *, read: Read = "local") -> Entry | None:
        """See `KeyValue.get`."""
        check_key(key)
        if self._is_local(read):
            await self._follow()
            if self._is_current(read):
                return self._get_local(key)
        return await self.backend.run_async(self._get_from_store(key, check_read(read)))

    async def delete(
        self, key: str, *, expect: int | None = None, who: str | None = None, why: str = ""
    ) -> int | None:
        """See `KeyValue.delete`."""
        return await self.backend.run_async(self._delete(key, expect, who, why))

    async def list(self, prefix: str = "", *, read: Read = "local") -> list[Entry]:
        """See `KeyValue.list`."""
        check_prefix(prefix)
        if self._is_local(read):
            await self._follow()
            if self._is_current(read):
                return self._list_local(prefix)
        return await self.backend.run_async(self._list_from_store(prefix, check_read(read)))

    def watch(self, prefix: str = "") -> AsyncWatch:
        """See `KeyValue.watch`: ``async for change in kv.watch("rules/")``."""
        check_prefix(prefix)
        self._start()
        return AsyncWatch(self._mirror, prefix)

    async def history(
        self, prefix: str = "", *, limit: int = 100, before: int | None = None
    ) -> Changes:
        """See `KeyValue.history`."""
        return await self.backend.run_async(self._history(prefix, limit, before))

    async def change(self, revision: int) -> Change | None:
        """See `KeyValue.change`."""
        return await self.backend.run_async(self._change(revision))

    async def sync(self) -> int:
        """See `KeyValue.sync`."""
        follower = self._start()
        await follower.catch_up()
        return self._mirror.position.revision

    async def status(self) -> Status:
        """See `KeyValue.status`."""
        if not self.backend.direct:
            await self._follow()
        return self._status()

    def _start(self) -> Follower:
        if self._follower is None:
            self._follower = Follower(self.backend, self._mirror, self._cache)
            try:
                self._follower.load()
            except StoreError as error:
                logger.warning("the cache on disk is not used: %s", error)
            self._task = asyncio.create_task(self._follower.run(), name="penstock-kv")
        return self._follower

    async def _follow(self) -> None:
        follower = self._start()
        if not follower.tried.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(follower.tried.wait(), self._timeout * 2)

    async def aclose(self) -> None:
        """Stop following, and close the connections or the file."""
        task, self._task, self._follower = self._task, None, None
        if task is not None:
            await cancel(task)
        if self._owns_backend:
            await self.backend.aclose()
        if self._cache is not None:
            self._cache.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
