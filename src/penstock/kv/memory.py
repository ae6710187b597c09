"""MemoryBackend: entries in this process, for tests, for one process, and while developing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable

from penstock import flows
from penstock.clock import WALL, Clock
from penstock.errors import RevisionConflict
from penstock.kv.backend import Fetched, Flow, Position, Snapshot, T, Written
from penstock.kv.record import Record, Write, new_token

MILLISECOND = 1_000_000
# The log: how many writes, and how many bytes, are remembered.
MOST_WRITES = 10_000
MOST_BYTES = 64 * 1024 * 1024


class MemoryBackend:
    """Thread-safe. Several `KeyValue` and `AsyncKeyValue` may share one."""

    direct = True
    name = "memory"
    poll = 5.0

    def __init__(
        self, clock: Clock = WALL, *, most_writes: int = MOST_WRITES, most_bytes: int = MOST_BYTES
    ) -> None:
        self._clock = clock
        self._most_writes = most_writes
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._records: dict[str, Record] = {}
        self._log: OrderedDict[int, Record] = OrderedDict()
        self._bytes = 0
        self._revision = 0
        self._epoch = new_token()
        self._listeners: set[Callable[[], None]] = set()

    def write(self, write: Write) -> Flow[Written]:
        with self._lock:
            now = self.now()
            current = self._live(write.key, now)
            actual = 0 if current is None else current.revision
            if write.expect is not None and write.expect != actual:
                raise RevisionConflict(write.key, write.expect, actual)
            if current is None and write.payload is None:
                return Written(None, now)
            self._revision += 1
            record = write.record(self._revision, actual, now)
            if record.payload is None:
                del self._records[write.key]
            else:
                self._records[write.key] = record
            self._remember(record)
            listeners = list(self._listeners)
        for listener in listeners:
            listener()
        return Written(record, now)
        yield  # so that it is a flow, which has no steps here

    def _remember(self, record: Record) -> None:
        self._log[record.revision] = record
        self._bytes += record.size
        while len(self._log) > 1 and (
            len(self._log) > self._most_writes or self._bytes > self._most_bytes
        ):
            _, oldest = self._log.popitem(last=False)
            self._bytes -= oldest.size

    def read(self, key: str) -> Flow[tuple[Record | None, int]]:
        with self._lock:
            return self._live(key, self.now()), self._revision
        yield

    def fetch(self, position: Position) -> Flow[Fetched]:
        with self._lock:
            records = self._after(position)
            return Fetched(self.now(), self._revision, self._position(), records)
        yield

    def _after(self, position: Position) -> list[Record] | None:
        if position.epoch != self._epoch:
            return None
        wanted = range(position.revision + 1, self._revision + 1)
        if wanted and wanted[0] not in self._log:
            return None
        return [self._log[revision] for revision in wanted]

    def snapshot(self, prefix: str = "") -> Flow[Snapshot]:
        with self._lock:
            now = self.now()
            for key in [k for k, record in self._records.items() if not record.is_live(now)]:
                del self._records[key]
            records = [r for key, r in self._records.items() if key.startswith(prefix)]
            return Snapshot(now, self._position(), records)
        yield

    def history(self, prefix: str, limit: int, before: int | None) -> Flow[list[Record]]:
        with self._lock:
            records = [
                record
                for record in reversed(self._log.values())
                if record.key.startswith(prefix) and (before is None or record.revision < before)
            ]
            return records[:limit]
        yield

    def _position(self) -> Position:
        last = self._log.get(self._revision)
        return Position(self._epoch, self._revision, "" if last is None else last.token)

    def _live(self, key: str, now: int) -> Record | None:
        record = self._records.get(key)
        if record is not None and not record.is_live(now):
            del self._records[key]
            return None
        return record

    def now(self) -> int:
        """Milliseconds since 1970."""
        return self._clock.now() // MILLISECOND

    # Running flows ------------------------------------------------------------------------

    def run(self, flow: Flow[T]) -> T:
        return flows.run(flow, _no_step)

    async def run_async(self, flow: Flow[T]) -> T:
        return flows.run(flow, _no_step)

    def wakeups(self) -> LocalWakeups:
        return LocalWakeups(self._listeners)

    def close(self) -> None:
        """There is nothing to close."""

    async def aclose(self) -> None:
        """There is nothing to close."""


class LocalWakeups:
    """Wakes a follower when a write is made in this process."""

    def __init__(self, listeners: set[Callable[[], None]]) -> None:
        self._listeners = listeners
        self._event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listeners.add(self.wake)

    def wake(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True

    async def close(self) -> None:
        self._listeners.discard(self.wake)


def _no_step(step: object) -> object:
    raise AssertionError("a flow of memory has no steps")
