"""The uncompiled counters of `SharedMemoryStore`: the same rows, behind a file lock.

One record lock on the file takes the place of all the mutexes. The kernel lets go
of it when its holder dies; the journal of the first stripe then says what to undo.
Record locks belong to a process, not to a thread, so a lock of this module keeps
the threads apart.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
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

# One for all files: closing any of them would let go of the process's record locks.
_threads = threading.Lock()


def _new_lock() -> None:
    global _threads  # a child must not inherit a lock that another thread held
    _threads = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)

_OFFSET, _SEEN = OFFSET_AT // 8, SEEN_AT // 8
_EVICTIONS, _RECOVERIES = EVICTIONS_AT // 8, RECOVERIES_AT // 8
_JOURNAL = (PAGE + LOCK_BYTES) // 8


class Mapped:
    """A mapped file, as one long row of signed words."""

    def __init__(self, mapping: mmap.mmap, layout: Layout, fd: int) -> None:
        self.words = memoryview(mapping).cast("q")
        self.layout = layout
        self.closed = False
        self._fd = fd

    def tidy(self) -> None:
        """Undo what was left half-done. Only for who is alone with the file."""
        self._undo()

    def close(self) -> None:
        with _threads:
            self.closed = True

    @contextmanager
    def locked(self) -> Iterator[None]:
        with _threads:
            if self.closed:
                raise StoreError("the store is closed")
            fcntl.lockf(self._fd, fcntl.LOCK_EX, 8)
            try:
                self._undo()
                yield
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 8)

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
        """A row of zeros for ``h``: free, run out, or of whom would be forgotten soonest."""
        hashes, width = self._hashes(h), self.layout.row_words
        rows = [hashes + WAYS + way * width for way in range(WAYS)]
        ends = [self.words[row] if self.words[hashes + way] else 0 for way, row in enumerate(rows)]
        best = min(range(WAYS), key=ends.__getitem__)
        if ends[best] > now:
            self.words[_EVICTIONS] += 1
        # In this order: killed in between, the place is merely free.
        self.words[hashes + best] = 0
        self.words[rows[best] : rows[best] + width] = memoryview(bytes(8 * width)).cast("q")
        self.words[hashes + best] = h
        return rows[best]

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
        return self.mapped.row(at) if at else None

    def change(self, place: int) -> AbstractContextManager[Words]:
        at = self.mapped.find(place) or self.mapped.insert(place, self.now())
        self.set_length(self.mapped.row(at), self.algorithm.most_words)
        return self.mapped.change(at)

    def remove(self, place: int) -> None:
        self.mapped.remove(place)
