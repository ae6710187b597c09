"""Mirror: what a process knows of a store, kept current by a follower.

It serves local reads and watches. Records are applied by revision, the later one of a key wins,
so it does not matter whether a write comes from the log, from a snapshot or from this process
itself, which knows its own writes before the log does.
"""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from penstock.clock import Clock
from penstock.concurrency.leases import LeaseClock
from penstock.errors import StoreError
from penstock.kv.backend import Position, Snapshot
from penstock.kv.entry import Change, Source, Status
from penstock.kv.memory import MILLISECOND
from penstock.kv.record import Record
from penstock.kv.watching import Queue

MEMORY_BYTES = 64 * 1024 * 1024


class ColdValues(Protocol):
    """Where values are that are not in memory: see cache.py."""

    def payload(self, key: str, revision: int) -> bytes | None: ...


class Mirror:
    """Thread-safe. ``store_now`` is the store's clock, if it is at hand."""

    def __init__(
        self,
        store_now: Callable[[], int] | None = None,
        *,
        clock: Clock | None = None,
        cold: ColdValues | None = None,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._clock = clock or LeaseClock()
        self._store_now = store_now
        self._cold = cold
        self._memory_bytes = memory_bytes
        self._lock = threading.RLock()
        self._records: dict[str, Record] = {}
        # Writes of this process that the log has not shown yet: revision, and when it was told.
        self._ahead: dict[str, tuple[int, int]] = {}
        self._expiries: list[tuple[int, str, int]] = []  # a heap: when, key and revision
        self._hot: OrderedDict[str, int] = OrderedDict()  # bytes of values in memory
        self._hot_bytes = 0
        self._offset = 0  # of the store's clock, in milliseconds
        self._queues: set[Queue] = set()
        self.position = Position()
        self._synced: int | None = None  # when it last heard from the store, by our clock
        self._loaded_age: float | None = None  # of what came from the disk
        self._reason = ""
        self.connected = False

    # Time ---------------------------------------------------------------------------------

    def now(self) -> int:
        """The store's time, in milliseconds."""
        if self._store_now is not None:
            return self._store_now()
        return self._clock.now() // MILLISECOND + self._offset

    def set_time(self, now: int, sent: int) -> None:
        """The store said that it is ``now``, when asked at ``sent`` by our clock."""
        received = self._clock.now()
        self._offset = now - (sent + (received - sent) // 2) // MILLISECOND

    def clock(self) -> int:
        return self._clock.now()

    @property
    def age(self) -> float | None:
        """Seconds since it heard from the store; None if it never did."""
        synced = self._synced
        if synced is None:
            return None
        return max(0, self._clock.now() - synced) / 1e9 + (self._loaded_age or 0.0)

    # Reading ------------------------------------------------------------------------------

    def get(self, key: str) -> Record | None:
        with self._lock:
            record = self._records.get(key)
            if record is None or not record.is_live(self.now()):
                return None
            return self._with_payload(record)

    def list(self, prefix: str) -> list[Record]:
        with self._lock:
            now = self.now()
            return [
                full
                for key, record in self._records.items()
                if key.startswith(prefix) and record.is_live(now)
                if (full := self._with_payload(record)) is not None
            ]

    def _with_payload(self, record: Record) -> Record | None:
        if record.payload:
            if self._cold is not None and record.key in self._hot:
                self._hot.move_to_end(record.key)
            return record
        payload = None if self._cold is None else self._cold.payload(record.key, record.revision)
        if payload is None:
            raise StoreError(f"the value of {record.key!r} is missing in the cache on disk")
        return record.with_payload(payload)

    def status(self) -> Status:
        if self.connected:
            return Status(True, self.position.revision, self.age, "store")
        if self._synced is None:
            return Status(False, 0, None, "nothing", self._reason)
        source: Source = "memory" if self._loaded_age is None else "disk"
        return Status(False, self.position.revision, self.age, source, self._reason)

    @property
    def knows_something(self) -> bool:
        return self._synced is not None

    # Changing -----------------------------------------------------------------------------

    def offer(self, record: Record) -> None:
        """A write of this process, before the log has it."""
        with self._lock:
            if self._synced is None or record.revision <= self.position.revision:
                return
            self._ahead[record.key] = record.revision, self._clock.now()
            self._apply(record)

    def advance(self, records: Iterable[Record], position: Position, sent: int) -> None:
        """Apply what the log has after the last position."""
        with self._lock:
            for record in records:
                self._apply(record)
            self._moved(position, sent)

    def replace(self, snapshot: Snapshot, sent: int) -> None:
        """Apply a snapshot, which was requested at ``sent``: what is not in it is gone.

        A server that has forgotten writes in a failover may be at a lower revision than before.
        Only own writes that were made since the snapshot was requested are kept.
        """
        with self._lock:
            current = {record.key: record for record in snapshot.records}
            for key in list(self._ahead):
                revision, told = self._ahead[key]
                if revision <= snapshot.position.revision or told < sent:
                    del self._ahead[key]
            for key, record in list(self._records.items()):
                if key not in current and key not in self._ahead:
                    self._drop(record, record.removal)
            for key, record in current.items():
                if key not in self._ahead and not self._has(record):
                    self._put(record)
            self._moved(snapshot.position, sent)

    def _has(self, record: Record) -> bool:
        known = self._records.get(record.key)
        return known is not None and (known.revision, known.token) == (
            record.revision,
            record.token,
        )

    def load(self, records: Iterable[Record], position: Position, age: float) -> None:
        """What the disk has, before the store was heard from. ``age`` is in seconds."""
        with self._lock:
            for record in records:
                self._put(record)
            self.position = position
            self._synced, self._loaded_age = self._clock.now(), age

    def _moved(self, position: Position, sent: int) -> None:
        self.position = position
        self._synced, self._loaded_age = sent, None
        self._reason, self.connected = "", True
        for key in [k for k, (revision, _) in self._ahead.items() if revision <= position.revision]:
            del self._ahead[key]

    def cut_off(self, reason: str) -> None:
        self._reason, self.connected = reason, False

    def _apply(self, record: Record) -> None:
        known = self._records.get(record.key)
        last = self._ahead.get(record.key, (0, 0))[0] if known is None else known.revision
        if record.revision < last or (known is not None and record.revision == last):
            return
        if record.payload is None:
            if known is not None:
                self._drop(known, record.change)
        elif record.is_live(self.now()):
            self._put(record)
        elif known is not None:
            self._drop(known, record.expiry)

    def _put(self, record: Record) -> None:
        self._forget(record.key)
        self._records[record.key] = record
        if record.payload:
            self._hot[record.key] = len(record.payload)
            self._hot_bytes += len(record.payload)
        if record.expires:
            heapq.heappush(self._expiries, (record.expires, record.key, record.revision))
        self._tell(record.key, partial(self._changed, record))

    def _drop(self, record: Record, change: Callable[[], Change]) -> None:
        self._forget(record.key)
        self._tell(record.key, change)

    def _forget(self, key: str) -> None:
        self._records.pop(key, None)
        self._hot_bytes -= self._hot.pop(key, 0)

    def expire(self) -> int | None:
        """Drop what has expired; milliseconds until the next one does."""
        with self._lock:
            now = self.now()
            while self._expiries:
                expires, key, revision = self._expiries[0]
                record = self._records.get(key)
                if record is not None and record.revision == revision:
                    if record.is_live(now):
                        return max(1, expires - now)
                    self._drop(record, record.expiry)
                heapq.heappop(self._expiries)
            return None

    def evict(self) -> None:
        """Values on disk need not be in memory: keep those that were read last."""
        if self._cold is None:
            return
        with self._lock:
            while self._hot_bytes > self._memory_bytes and self._hot:
                key, size = self._hot.popitem(last=False)
                self._hot_bytes -= size
                self._records[key] = self._records[key].without_payload()

    # Watching -----------------------------------------------------------------------------

    def subscribe(self, queue: Queue) -> None:
        """The state of this moment comes first, then every change."""
        with self._lock:
            now = self.now()
            self._queues.add(queue)
            for key, record in sorted(self._records.items()):
                if key.startswith(queue.prefix) and record.is_live(now):
                    queue.push(key, partial(self._changed, record))

    def unsubscribe(self, queue: Queue) -> None:
        with self._lock:
            self._queues.discard(queue)

    def _changed(self, record: Record) -> Change | None:
        with self._lock:
            if not record.payload:
                current = self._records.get(record.key)
                if current is None or current.revision != record.revision:
                    return None  # another change has been queued since
                record = self._with_payload(current) or record
            return record.change(0.0 if self.connected else self.age or 0.0)

    def _tell(self, key: str, change: Callable[[], Change | None]) -> None:
        for queue in self._queues:
            if key.startswith(queue.prefix):
                queue.push(key, change)
