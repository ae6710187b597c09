"""The uncompiled counters of `SharedMemoryStore`: the same rows, behind a file lock.

One lock on the open file takes the place of all the mutexes. The kernel lets go of it
when its holder dies; the journal of the first stripe then says what to undo. It is
bound to the open file, not to the process: threads share it, so a lock of their own
keeps them apart, and a forked child opens the file anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from penstock.algorithms.words import Words
from penstock.clock import MONOTONIC, SECOND, WALL, Clock
from penstock.errors import StoreError
from penstock.limit import Limit
from penstock.stores._pure import PureCounters
from penstock.stores.base import Counters, check_key
from penstock.stores.layout import (
    EVICTIONS_AT,
    LOCK_BYTES,
    OFFSET_AT,
    PAGE,
    RECOVERIES_AT,
    SEEN_AT,
    WAYS,
    Layout,
)

_OFFSET, _SEEN = OFFSET_AT // 8, SEEN_AT // 8
_EVICTIONS, _RECOVERIES = EVICTIONS_AT // 8, RECOVERIES_AT // 8
_JOURNAL = (PAGE + LOCK_BYTES) // 8


_opening = threading.Lock()

# struct flock: type, whence, start, length, pid (which must be 0).
_TAKE, _GIVE = (
    struct.pack("hhxxxxqqixxxx", kind, os.SEEK_SET, 0, 8, 0)
    for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK)
)


class Mapped:
    """A mapped file, as one long row of signed words."""

    def __init__(self, mapping: mmap.mmap, layout: Layout, fd: int) -> None:
        self.words = memoryview(mapping).cast("q")
        self.layout = layout
        self.closed = False
        self._fd = fd  # holds the lock that says that the file is in use
        self._lock_fd, self._pid = -1, 0

    def tidy(self) -> None:
        """Undo what was left half-done. Only for who is alone with the file."""
        self._undo()

    def close(self) -> None:
        self.closed = True
        for fd in (self._fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock_fd = -1

    def __del__(self) -> None:
        self.close()

    @contextmanager
    def locked(self) -> Iterator[None]:
        if self._pid != os.getpid():
            self._open_lock()
        with self._threads:
            if self.closed:
                raise StoreError("the store is closed")
            fcntl.fcntl(self._lock_fd, fcntl.F_OFD_SETLKW, _TAKE)
            try:
                self._undo()
                yield
            finally:
                fcntl.fcntl(self._lock_fd, fcntl.F_OFD_SETLKW, _GIVE)

    def _open_lock(self) -> None:
        """For this process: what a child inherits is the lock of its parent."""
        if self.closed:
            raise StoreError("the store is closed")
        with _opening:
            if self._pid != os.getpid():
                self._threads = threading.Lock()
                path = f"/proc/self/fd/{self._fd}"
                self._lock_fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                self._pid = os.getpid()

    @contextmanager
    def change(self, row: int) -> Iterator[Words]:
        """Note the row in the journal: within, it may be half-written."""
        width = self.layout.row_words
        self.words[_JOURNAL + 1 : _JOURNAL + 1 + width] = self.words[row : row + width]
        self.words[_JOURNAL] = row
        yield self.row(row)
        self.words[_JOURNAL] = 0

    def row(self, at: int) -> Words:
        return Words(self.words, at)  # type: ignore[arg-type]  # indexed like a list

    def _undo(self) -> None:
        row, width = self.words[_JOURNAL], self.layout.row_words
        if row:
            self.words[row : row + width] = self.words[_JOURNAL + 1 : _JOURNAL + 1 + width]
            self.words[_JOURNAL] = 0
            self.words[_RECOVERIES] += 1

    def find(self, h: int) -> int:
        """Where the row of ``h`` begins, or 0."""
        hashes = self._hashes(h)
        for way in range(WAYS):
            if self.words[hashes + way] == h:
                return hashes + WAYS + way * self.layout.row_words
        return 0

    def insert(self, h: int, now: int) -> int:
        """A row of zeros for ``h``: a free one, or of whom would be forgotten soonest.

        ``now`` is the earlier of the clocks that rows may be meant by.
        """
        hashes, width = self._hashes(h), self.layout.row_words
        rows = [hashes + WAYS + way * width for way in range(WAYS)]
        ends = [self.words[row] if self.words[hashes + way] else -1 for way, row in enumerate(rows)]
        best = min(range(WAYS), key=ends.__getitem__)
        if ends[best] > now:
            self.words[_EVICTIONS] += 1
        # In this order: killed in between, the place is merely free.
        self.words[hashes + best] = 0
        self.clear(rows[best])
        self.words[hashes + best] = h
        return rows[best]

    def clear(self, row: int) -> None:
        width = self.layout.row_words
        self.words[row : row + width] = memoryview(bytes(8 * width)).cast("q")

    def remove(self, h: int) -> None:
        hashes = self._hashes(h)
        for way in range(WAYS):
            if self.words[hashes + way] == h:
                self.words[hashes + way] = 0

    def _hashes(self, h: int) -> int:
        index = ((h & 2**64 - 1) >> 32) * self.layout.sets >> 32
        return (self.layout.sets_at + index * self.layout.set_bytes) // 8


class MappedCounters(PureCounters):
    """The counters of one limit, in a mapped file."""

    def __init__(self, limit: Limit, clock: Clock | None, mapped: Mapped, secret: bytes) -> None:
        Counters.__init__(self, limit, clock)
        self.mapped = mapped
        self._secret = secret
        self._custom = self.clock is not MONOTONIC and self.clock is not WALL
        self.blank = Words([0] * self.algorithm.most_words)
        self.set_length(self.blank, self.algorithm.most_words)
        self.algorithm.start(self.now())

    def now(self) -> int:
        if self._custom or self.algorithm.wall:
            return self.clock.now()
        now = time.monotonic_ns() + self.mapped.words[_OFFSET]
        if now - self.mapped.words[_SEEN] > SECOND:
            self.mapped.words[_SEEN] = now
        return now

    def place(self, key: str) -> int:
        """A hash: keyed, and the same in every process; never 0, which is a free place."""
        text = check_key(key).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, key=self._secret, digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True) or 1

    def locked(self) -> AbstractContextManager[None]:
        return self.mapped.locked()

    def find(self, place: int) -> Words | None:
        at = self.mapped.find(place)
        row = self.mapped.row(at) if at else None
        return row if row is not None and self.algorithm.sound(row) else None

    def change(self, place: int) -> AbstractContextManager[Words]:
        at = self.mapped.find(place) or self.mapped.insert(place, self._earliest())
        row = self.mapped.row(at)
        self.set_length(row, self.algorithm.most_words)
        if not self.algorithm.sound(row):
            # A machine that lost its power wrote one page of a set and not another.
            self.mapped.clear(at)
            self.set_length(row, self.algorithm.most_words)
        return self.mapped.change(at)

    def _earliest(self) -> int:
        """Now by the wall or by the file's own time, whichever is behind the other."""
        if self._custom:
            return self.clock.now()
        return min(time.time_ns(), time.monotonic_ns() + self.mapped.words[_OFFSET])

    def remove(self, place: int) -> None:
        self.mapped.remove(place)
