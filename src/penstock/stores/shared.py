"""SharedMemoryStore: one limit for all processes of a host, without a server."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
import struct
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock._mode import COMPILED
from penstock.algorithms import build
from penstock.clock import Clock, MonotonicClock
from penstock.decision import Decision
from penstock.errors import StoreError, StoreFileError, UnsupportedLimit
from penstock.limit import Limit
from penstock.stores.base import Counters, Store, check_clock
from penstock.stores.layout import (
    COMPILED_CORE,
    EVICTIONS_AT,
    PAGE,
    PURE_CORE,
    RECOVERIES_AT,
    Layout,
    carry_clock,
    read_layout,
)

LINUX = sys.platform == "linux"
if LINUX:
    import fcntl

    if COMPILED and not TYPE_CHECKING:
        from penstock.stores._mapped import Mapped, MappedCounters, hit_each
    else:
        from penstock.stores._mapped_pure import Mapped, MappedCounters
        from penstock.stores._pure import hit_each

_CORE = COMPILED_CORE if COMPILED else PURE_CORE


class SharedMemoryStore(Store):
    """A table in a memory-mapped file, shared by every process that opens ``path``.

    The first process makes the file, the others find it; state outlives them all.
    A process may be killed at any instant: the row that it was about to write is
    undone, and nobody waits for it. Put the file on ``/dev/shm`` for speed, or on a disk
    to keep state over a reboot of the machine.

    Holds ``max_keys`` keys, over all limits, in sets of neighbours. In a set
    without a free place, the key that would be forgotten soonest gives way and is
    counted in ``evictions``. A limit whose state does not fit into
    ``bytes_per_key`` is refused when it is first used.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_keys: int = 100_000,
        bytes_per_key: int = 256,
        clock: Clock | None = None,
    ) -> None:
        if not LINUX:
            raise StoreError("SharedMemoryStore needs Linux; MemoryStore works everywhere")
        if type(max_keys) is not int or not 1 <= max_keys <= 2**31:
            raise ValueError(f"max_keys is a whole number from 1 to 2**31, not {max_keys!r}")
        if type(bytes_per_key) is not int or bytes_per_key % 8 or not 16 <= bytes_per_key <= 65536:
            raise ValueError(
                f"bytes_per_key is a multiple of 8 from 16 to 65536, not {bytes_per_key!r}"
            )
        super().__init__()
        self._path = Path(path)
        # The file's own time is monotonic already, and goes on over a reboot.
        self._clock = None if type(clock) is MonotonicClock else check_clock(clock)
        wanted = Layout.for_keys(max_keys, bytes_per_key, _CORE)
        fd, self._layout = _open(self._path, wanted)
        self._map = _map(fd, self._layout.file_bytes)
        self._mapped = Mapped(self._map, self._layout, fd)  # owns the descriptor from now on
        _attach(fd, self._map, self._mapped)

    def make_counters(self, limit: Limit) -> Counters:
        if self._mapped.closed:
            raise StoreError(f"{self!r} is closed")
        needed = build(limit).most_words
        if needed > self._layout.row_words:
            raise UnsupportedLimit(
                f"{limit} needs {8 * (needed + 1)} bytes a key, this store has"
                f" {self.bytes_per_key}: make it with bytes_per_key={8 * (needed + 1)},"
                " or use an algorithm of constant size such as sliding_window"
            )
        # The same in every process: the file's secret, and the limit as it is written.
        secret = hashlib.blake2b(
            str(limit).encode(), key=self._layout.hash_key, digest_size=16
        ).digest()
        return MappedCounters(limit, self._clock, self._mapped, secret)

    def hit_each(self, wanted: list[tuple[Any, str, int]], attempt: bool = False) -> list[Decision]:
        decisions: list[Decision] = hit_each(wanted, attempt)
        return decisions

    @property
    def path(self) -> Path:
        return self._path

    @property
    def max_keys(self) -> int:
        return self._layout.max_keys

    @property
    def bytes_per_key(self) -> int:
        return self._layout.bytes_per_key

    @property
    def evictions(self) -> int:
        """How many keys with live state had to give way so far, in all processes."""
        return int(struct.unpack_from("=q", self._map, EVICTIONS_AT)[0])

    @property
    def recoveries(self) -> int:
        """How many times a process died within a decision, and another one took over."""
        return int(struct.unpack_from("=q", self._map, RECOVERIES_AT)[0])

    def close(self) -> None:
        """Let go of the file. State stays in it; the store is of no use any more."""
        self._mapped.close()

    def __enter__(self) -> SharedMemoryStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SharedMemoryStore {str(self._path)!r}>"


def _open(path: Path, wanted: Layout) -> tuple[int, Layout]:
    """The file, made whole before it has a name, or found and checked."""
    for _ in range(100):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            if path.is_symlink():
                raise StoreFileError(f"{path} is a link that leads nowhere") from None
            _make_file(path, wanted)
            continue
        except OSError as error:
            raise StoreFileError(f"cannot open {path}: {error.strerror}") from error
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise StoreFileError(f"{path} is not an ordinary file: it was left as it is")
            found = read_layout(os.pread(fd, PAGE, 0), os.fstat(fd).st_size, path, wanted.core)
            if (found.max_keys, found.row_words) != (wanted.max_keys, wanted.row_words):
                raise StoreFileError(
                    f"{path} was made with max_keys={found.max_keys} and"
                    f" bytes_per_key={found.bytes_per_key}, not {wanted.max_keys} and"
                    f" {wanted.bytes_per_key}: give the same everywhere"
                )
        except BaseException:
            os.close(fd)
            raise
        return fd, found
    raise StoreFileError(f"cannot open {path}: it keeps disappearing")


def _make_file(path: Path, layout: Layout) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.new")
    try:
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Reserved, not only promised: a full disk must not kill us on a write.
            os.posix_fallocate(fd, 0, layout.file_bytes)
            os.pwrite(fd, layout.header(), 0)
            with contextlib.suppress(FileExistsError):  # another process was first
                os.link(temporary, path)
        finally:
            os.close(fd)
            os.unlink(temporary)
    except OSError as error:
        raise StoreFileError(
            f"cannot make {path} of {layout.file_bytes} bytes: {error.strerror}"
        ) from error


def _map(fd: int, size: int) -> mmap.mmap:
    """The mapping keeps a descriptor of its own, which must not keep our lock: open anew."""
    other = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(other, size)
    finally:
        os.close(other)


def _attach(fd: int, mapping: mmap.mmap, mapped: Any) -> None:
    """Everyone who uses the file shares a lock on it; who is alone may tidy up.

    Alone means that no lock in the file can be held by anybody: they are made
    anew, unfinished changes are undone, and the clock is carried over a reboot.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(fd, fcntl.LOCK_SH)
        return
    with memoryview(mapping) as whole, whole[:PAGE] as page:
        carry_clock(page)
    mapped.tidy()
    fcntl.flock(fd, fcntl.LOCK_SH)
