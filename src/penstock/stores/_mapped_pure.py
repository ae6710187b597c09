"""The uncompiled counters of `SharedMemoryStore`: the same rows, behind a file lock.

One lock on the open file replaces all mutexes. The kernel releases it when its holder dies; the
journal of the first stripe then says what to undo. The lock belongs to the open file, not to the
process, so threads need another lock between them, and a forked child opens the file again.

The file is read and written, not mapped: accessing a page of a truncated file would end the
process, and Python cannot prevent that. What is read is checked, as in the compiled core.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from penstock.algorithms.words import Words
from penstock.clock import MONOTONIC, SECOND, WALL, Clock
from penstock.decision import Decision
from penstock.errors import StoreError
from penstock.limits import Limit
from penstock.stores._pure import PureCounters
from penstock.stores.base import Counters, check_key
from penstock.stores.layout import (
    EVICTIONS_AT,
    FIXED_SIZE,
    LOCK_BYTES,
    PAGE,
    RECOVERIES_AT,
    REPAIRS_AT,
    SEEN_AT,
    WAYS,
    Layout,
)
from penstock.stores.levels import LITTLE, LOCKED, MASK, REFUSED, RUN_OUT, half_of, level_after
from penstock.stores.shared_file import open_again

_JOURNAL = PAGE + LOCK_BYTES


_opening = threading.Lock()

# struct flock: type, whence, start, length, pid (which must be 0).
_TAKE, _GIVE = (
    struct.pack("hhxxxxqqixxxx", kind, os.SEEK_SET, 0, 8, 0)
    for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK)
)


class Mapped:
    """The file, in signed 64-bit words; offsets are in bytes."""

    def __init__(self, fd: int, layout: Layout, path: Path) -> None:
        self.layout = layout
        self.closed = False
        self.offset = 0  # of the file's clock: read once, as the file may be damaged
        self._noted = 0
        self._path = path
        self._fixed = layout.fixed()
        self._fd = fd  # holds the lock that says that the file is in use
        self._lock_fd, self._pid = -1, 0

    def set_clock(self, offset: int) -> None:
        self.offset = offset

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
                self._check()
                self.tidy()
                yield
            finally:
                fcntl.fcntl(self._lock_fd, fcntl.F_OFD_SETLKW, _GIVE)

    def _open_lock(self) -> None:
        """For this process: a child inherits the lock of its parent."""
        if self.closed:
            raise StoreError("the store is closed")
        with _opening:
            if self._pid != os.getpid():
                self._threads = threading.Lock()
                self._lock_fd = open_again(self._fd)
                self._pid = os.getpid()

    # Reading and writing -------------------------------------------------------------

    def read(self, at: int, words: int) -> list[int]:
        data = os.pread(self._fd, 8 * words, at)
        if len(data) < 8 * words:
            raise self._cut_off()
        return list(struct.unpack(f"={words}q", data))

    def write(self, at: int, words: Sequence[int]) -> None:
        try:
            data = struct.pack(f"={len(words)}q", *words)
        except struct.error:  # from a damaged row: overflow as 64-bit numbers do
            data = struct.pack(f"={len(words)}q", *map(_wrapped, words))
        os.pwrite(self._fd, data, at)

    def count_at(self, at: int) -> int:
        """One of the header's counters."""
        if self.closed:
            raise StoreError("the store is closed")
        return self.read(at, 1)[0]

    def add(self, at: int, count: int = 1) -> None:
        self.write(at, [self.read(at, 1)[0] + count])

    def note_time(self, now: int) -> None:
        """Record the time, from which the clock continues after a reboot."""
        if not 0 <= now - self._noted <= SECOND:
            self._noted = now
            self.write(SEEN_AT, [now])

    def _check(self) -> None:
        """Raise if the file was truncated, and perhaps filled again, since it was opened."""
        size = os.fstat(self._fd).st_size
        if size != self.layout.file_bytes or os.pread(self._fd, FIXED_SIZE, 0) != self._fixed:
            raise self._cut_off()

    def _cut_off(self) -> StoreError:
        return StoreError(
            f"{self._path} was cut off while it was in use: stop the processes that use it,"
            " delete it, and start them again"
        )

    # Rows ------------------------------------------------------------------------------

    @contextmanager
    def change(self, at: int, row: list[int]) -> Iterator[Words]:
        """Copy the row to the journal, and write it after it was changed."""
        self.write(_JOURNAL + 8, [len(row), *row])
        self.write(_JOURNAL, [at])
        yield Words(row)
        self.write(at, row)
        self.write(_JOURNAL, [0])

    def tidy(self) -> None:
        """Undo what a process that died left half-written; the caller holds the lock."""
        at, words = self.read(_JOURNAL, 2)
        if not at:
            return
        if self.layout.is_row(at) and 0 < words <= self.layout.row_words:
            self.write(at, self.read(_JOURNAL + 16, words))
            self.add(RECOVERIES_AT)
        else:
            self.add(REPAIRS_AT)
        self.write(_JOURNAL, [0])

    def find(self, h: int) -> tuple[int, int, int]:
        """The offsets of a key's hash and row, and its level; or zeros."""
        start = self._set_of(h)
        for way, word in enumerate(self.read(start, WAYS)):
            if word & ~MASK == h:
                return start + 8 * way, self._row_at(start, way), word & MASK
        return 0, 0, 0

    def insert(self, h: int, now: int, blank: list[int]) -> tuple[int, int]:
        """A blank row for ``h``: a free one, or that of the key with the lowest rank.

        ``now`` is the earlier of the clocks that rows may use.
        """
        start = self._set_of(h)
        ranks = [
            self._rank(word, self._row_at(start, way), now)
            for way, word in enumerate(self.read(start, WAYS))
        ]
        best = min(range(WAYS), key=ranks.__getitem__)
        if ranks[best][0] != RUN_OUT:
            self.add(EVICTIONS_AT)
        # In this order: killed in between, the place is merely free.
        at, row = start + 8 * best, self._row_at(start, best)
        self.write(at, [0])
        self.write(row, blank)
        self.write(at, [h])
        return at, row

    def _rank(self, word: int, row: int, now: int) -> tuple[int, int]:
        """The key with the lowest rank is evicted."""
        if word == 0:
            return RUN_OUT, -(2**63)
        end, until = self.read(row, 2) if self.layout.row_words > 1 else (*self.read(row, 1), 0)
        level = word & MASK
        if end <= now:
            level = RUN_OUT
        elif level == LOCKED and until <= now:
            level = REFUSED
        return level, end

    def remove(self, h: int) -> None:
        at, _, _ = self.find(h)
        if at:
            self.write(at, [0])

    def clear(self) -> None:
        """Forget every key."""
        with self.locked():
            for index in range(self.layout.sets):
                self.write(self.layout.sets_at + index * self.layout.set_bytes, [0] * WAYS)

    def _row_at(self, start: int, way: int) -> int:
        return start + 8 * (WAYS + way * self.layout.row_words)

    def _set_of(self, h: int) -> int:
        index = ((h & 2**64 - 1) >> 32) * self.layout.sets >> 32
        return self.layout.sets_at + index * self.layout.set_bytes


class MappedCounters(PureCounters):
    """The counters of one limit, in a shared file."""

    def __init__(self, limit: Limit, clock: Clock | None, mapped: Mapped, secret: bytes) -> None:
        Counters.__init__(self, limit, clock)
        self.mapped = mapped
        self._secret = secret
        self._half = half_of(limit)
        self._custom = self.clock is not MONOTONIC and self.clock is not WALL
        self.blank = Words([0] * self.algorithm.words)
        self.set_length(self.blank, self.algorithm.most_words)
        self.algorithm.start(self.now())

    def now(self) -> int:
        if self._custom or self.algorithm.wall:
            return self.clock.now()
        now = time.monotonic_ns() + self.mapped.offset
        self.mapped.note_time(now)
        return now

    def place(self, key: str) -> int:
        """A keyed hash, the same in every process; never 0, which is a free place."""
        text = check_key(key).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, key=self._secret, digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True) & ~MASK or MASK + 1

    def locked(self) -> AbstractContextManager[None]:
        return self.mapped.locked()

    def find(self, place: int) -> Words | None:
        word, row, _ = self.mapped.find(place)
        return self._sound_row(word, row) if row else None

    def change(self, place: int) -> AbstractContextManager[Words]:
        word, at, level = self.mapped.find(place)
        row = self._sound_row(word, at) if at else None
        if row is None:
            word, at = self.mapped.insert(place, self._earliest(), self.blank.cells)
            row = Words(self.mapped.read(at, self.algorithm.most_words))
        elif level and row[0] <= self.now():
            self.mapped.write(word, [place])  # it starts afresh
        return self.mapped.change(at, row.cells)

    def grow(self, row: Words) -> None:
        """A row has its full length from the beginning: one without room is damaged."""
        row.cells[: len(self.blank.cells)] = self.blank.cells
        self.mapped.add(REPAIRS_AT)

    def rise(self, place: int, decision: Decision, most: int = LOCKED) -> None:
        word, _, level = self.mapped.find(place)
        earned = min(most, level_after(decision, self._half, bool(self.limit.lockout_ns)))
        if word and earned > max(level, LITTLE):
            self.mapped.write(word, [place | earned])

    def _sound_row(self, word: int, at: int) -> Words | None:
        """The row, or None if it is damaged and was dropped."""
        row = Words(self.mapped.read(at, self.algorithm.most_words))
        if self.algorithm.sound(row):
            return row
        # Damaged, or written only in part when the machine lost power.
        self.mapped.write(word, [0])
        self.mapped.add(REPAIRS_AT)
        return None

    def _earliest(self) -> int:
        """The wall clock's time or the file's own, whichever is earlier."""
        if self._custom:
            return self.clock.now()
        return min(time.time_ns(), time.monotonic_ns() + self.mapped.offset)

    def remove(self, place: int) -> None:
        self.mapped.remove(place)


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
