"""Follower: keeps a mirror current, until it is cancelled.

::

    subscribe to wake-ups
    snapshot, or what the log has after the last position
    wait for a wake-up, 5 seconds, or until something expires ── and again

It subscribes first, so nothing is lost in between. If the log no longer has what follows, or the
store has forgotten writes, it takes a snapshot. While the store is away, the mirror keeps what
it has and says so. It is asyncio code; for threads, it runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence

from penstock.errors import PenstockError, StoreError
from penstock.kv.backend import Backend, Position, Wakeups
from penstock.kv.cache import DiskCache
from penstock.kv.cancelling import cancel
from penstock.kv.mirror import Mirror
from penstock.kv.record import Record

logger = logging.getLogger("penstock.kv")

# Seconds before the store is tried again; the pause doubles.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


class Follower:
    def __init__(self, backend: Backend, mirror: Mirror, cache: DiskCache | None = None) -> None:
        self._backend = backend
        self._mirror = mirror
        self._cache = cache
        self._wakeups: Wakeups | None = None
        self._catching_up = asyncio.Lock()
        self._saved = Position()
        self.tried = asyncio.Event()  # once to reach the store, with or without success

    async def run(self) -> None:
        """Until it is cancelled."""
        pause = FIRST_PAUSE
        while True:
            wakeups = self._backend.wakeups()
            try:
                await wakeups.open()
                self._wakeups = wakeups
                await self.catch_up()
                self._say_connected()
                pause = FIRST_PAUSE
                await self._follow(wakeups)
                continue  # the subscription is deaf: a new one
            except PenstockError as error:
                self._cut_off(str(error))
            except Exception as error:
                logger.exception("following %s failed", self._backend.name)
                self._cut_off(f"{type(error).__name__}: {error}")
            finally:
                self._wakeups = None
                await wakeups.close()
                self.tried.set()
            self._mirror.expire()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _follow(self, wakeups: Wakeups) -> None:
        """Until changes come for which there was no wake-up."""
        while True:
            left = self._mirror.expire()
            seconds = self._backend.poll if left is None else min(self._backend.poll, left / 1000)
            woken = await wakeups.wait(seconds)
            if not woken and seconds < self._backend.poll:
                continue  # something expires
            if await self.catch_up() and not woken and not self._backend.direct:
                logger.info("%s: a change came without a wake-up", self._backend.name)
                return

    def wake(self) -> None:
        """Look now; from any thread."""
        if self._wakeups is not None:
            self._wakeups.wake()

    async def catch_up(self) -> bool:
        """Apply all that was written before this call; whether that was anything."""
        async with self._catching_up:
            changed = False
            while True:
                before, sent = self._mirror.position, self._mirror.clock()
                fetched = await self._backend.run_async(self._backend.fetch(before))
                self._mirror.set_time(fetched.now, sent)
                if fetched.records is None:
                    changed |= await self._replace()
                    continue
                self._mirror.advance(fetched.records, fetched.position, sent)
                changed |= bool(fetched.records)
                await self._save(fetched.records)
                if fetched.position.revision >= fetched.revision:
                    self._mirror.expire()
                    return changed

    async def _replace(self) -> bool:
        before, sent = self._mirror.position, self._mirror.clock()
        snapshot = await self._backend.run_async(self._backend.snapshot())
        if before.epoch and snapshot.position.epoch != before.epoch:
            logger.warning(
                "%s has lost its data since revision %d and begins anew",
                self._backend.name, before.revision,
            )  # fmt: skip
        self._mirror.set_time(snapshot.now, sent)
        self._mirror.replace(snapshot, sent)
        await self._save(snapshot.records, whole=True)
        return True

    # The cache on disk ------------------------------------------------------------------------

    def load(self) -> None:
        """What the disk has; called before `run`."""
        cached = None if self._cache is None else self._cache.load()
        if cached is not None:
            self._mirror.load(cached.records, cached.position, cached.age)
            self._saved = cached.position
            self._mirror.evict()

    async def _save(self, records: Sequence[Record], whole: bool = False) -> None:
        if self._cache is None:
            return
        position = self._mirror.position
        try:
            saved = await asyncio.to_thread(self._cache.save, self._saved, records, position, whole)
            if not saved:  # another process writes to the same file
                everything = self._mirror.list("")
                await asyncio.to_thread(self._cache.save, self._saved, everything, position, True)
        except StoreError as error:
            logger.warning("the cache on disk could not be written: %s", error)
            return
        self._saved = position
        self._mirror.evict()

    # Saying so --------------------------------------------------------------------------------

    def _say_connected(self) -> None:
        if self.tried.is_set():
            logger.info("%s is followed again", self._backend.name)
        self.tried.set()

    def _cut_off(self, reason: str) -> None:
        if self._mirror.connected or not self.tried.is_set():
            age = self._mirror.age
            known = "nothing is known yet" if age is None else f"what is known is {age:.1f} s old"
            logger.warning("cut off from %s: %s; %s", self._backend.name, reason, known)
        self._mirror.cut_off(reason)


class FollowerThread:
    """A follower in a thread of its own, for `KeyValue`. `stop` ends it."""

    def __init__(self, backend: Backend, mirror: Mirror, cache: DiskCache | None) -> None:
        self._backend = backend
        self._mirror = mirror
        self._cache = cache
        self._loop: asyncio.AbstractEventLoop | None = None
        self._follower: Follower | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self.tried = threading.Event()
        self._thread = threading.Thread(target=self._main, name="penstock-kv", daemon=True)
        self._thread.start()
        self._started.wait()

    def _main(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._follower = follower = Follower(self._backend, self._mirror, self._cache)
        try:
            follower.load()
        except StoreError as error:
            logger.warning("the cache on disk is not used: %s", error)
        self._stopping = asyncio.Event()
        following = asyncio.create_task(follower.run())
        trying = asyncio.create_task(self._say_tried(follower))
        self._started.set()
        await self._stopping.wait()
        await cancel(following)
        await cancel(trying)
        self.tried.set()
        await self._backend.aclose()

    async def _say_tried(self, follower: Follower) -> None:
        await follower.tried.wait()
        self.tried.set()

    def catch_up(self, timeout: float) -> None:
        assert self._follower is not None
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(self._follower.catch_up(), self._loop)
        future.result(timeout)

    def wake(self) -> None:
        if self._follower is not None:
            self._follower.wake()

    def stop(self) -> None:
        if self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(5.0)
