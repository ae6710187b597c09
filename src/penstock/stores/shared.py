"""SharedMemoryStore: one limit for all processes of a host, without a server."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock._mode import COMPILED
from penstock.algorithms import build
from penstock.clock import Clock, MonotonicClock
from penstock.decision import Decision
from penstock.errors import StoreError, StoreFileError, UnsupportedLimit
from penstock.keys import encode
from penstock.limits import Limit
from penstock.stores.base import Counters, Store, check_clock
from penstock.stores.layout import (
    COMPILED_CORE,
    EVICTIONS_AT,
    LEAST_ROW,
    MOST_KEYS,
    MOST_ROW,
    PURE_CORE,
    RECOVERIES_AT,
    REPAIRS_AT,
    Layout,
)

LINUX = sys.platform == "linux"
if LINUX:
    from penstock.stores.shared_file import (
        attach,
        checked_layout,
        memory_file,
        open_again,
        open_file,
    )

    if COMPILED and not TYPE_CHECKING:
        from penstock.stores._mapped import Mapped, MappedCounters, hit_each
    else:
        from penstock.stores._mapped_pure import Mapped, MappedCounters
        from penstock.stores._pure import hit_each

_CORE = COMPILED_CORE if COMPILED else PURE_CORE
DEFAULT_MAX_KEYS = 100_000
DEFAULT_BYTES_PER_KEY = 256


class SharedMemoryStore(Store):
    """A table in a memory-mapped file, shared by every process that opens ``path``.

    The first process creates the file; state outlives all processes. A process may be killed
    at any time: the row that it was writing is restored, and nobody waits for it. Put the file
    on ``/dev/shm`` for speed, or on a disk to keep state over a reboot.

    Holds ``max_keys`` keys (by default 100,000), over all limits, in sets. In a full set, the
    key that has used least of its limit is evicted and counted in ``evictions``; keys that are
    locked out are evicted last. A limit whose state does not fit into ``bytes_per_key`` (by
    default 256) is refused when it is first used. Without sizes, an existing file is used as
    it is.

    ``path`` may also be the descriptor of a file that `memory_file` has created.
    """

    name: str

    def __init__(
        self,
        path: str | os.PathLike[str] | int,
        max_keys: int | None = None,
        bytes_per_key: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not LINUX:
            raise StoreError("SharedMemoryStore needs Linux; MemoryStore works everywhere")
        wanted = sizes(max_keys, bytes_per_key)
        super().__init__()
        # The file's own time is monotonic already, and continues after a reboot.
        self._clock = None if type(clock) is MonotonicClock else check_clock(clock)
        if isinstance(path, int):
            self.name, self._path = "shared", Path(f"/proc/self/fd/{path}")
            fd = open_again(path)
        else:
            self.name, self._path = f"shared:{path}", Path(path)
            fd = open_file(self._path, wanted)
        try:
            layout = checked_layout(fd, self._path, _CORE)
            expected = (max_keys or layout.max_keys, bytes_per_key or layout.bytes_per_key)
            if (layout.max_keys, layout.bytes_per_key) != expected:
                raise StoreFileError(
                    f"{self._path} was made with max_keys={layout.max_keys} and"
                    f" bytes_per_key={layout.bytes_per_key}, not {expected[0]} and {expected[1]}:"
                    " give the same everywhere, or nothing to use it as it is; or delete it"
                )
        except BaseException:
            os.close(fd)
            raise
        self._layout = layout
        self._mapped = Mapped(fd, layout, self._path)  # owns the descriptor from now on
        attach(fd, self._path, self._mapped)

    def make_counters(self, limit: Limit, name: str | None = None) -> Counters:
        if self._mapped.closed:
            raise StoreError(f"{self!r} is closed")
        needed = bytes_needed(limit)
        if needed > self.bytes_per_key:
            raise UnsupportedLimit(
                f"{limit} needs {needed} bytes a key, this store has {self.bytes_per_key}:"
                f" make it anew with bytes_per_key={needed}, or use token_bucket, which needs 16"
            )
        # The same in every process: the file's secret, and the limit as it is written.
        text = str(limit) if name is None else f"{limit}\0{name}"
        secret = hashlib.blake2b(encode(text), key=self._layout.hash_key, digest_size=16).digest()
        return MappedCounters(limit, self._clock, self._mapped, secret)

    def release(self, limit: Limit) -> bool:
        return self.forget(limit)

    def hit_each(self, wanted: list[tuple[Any, str, int]], attempt: bool = False) -> list[Decision]:
        decisions: list[Decision] = hit_each(wanted, attempt)
        return decisions

    def clear(self) -> None:
        """Forget every key of every limit, in all processes that use the file."""
        self._mapped.clear()

    @property
    def path(self) -> Path:
        return self._path

    @property
    def identity(self) -> str:
        """The same in all processes that map this file, and of no other file."""
        return hashlib.blake2b(
            self._layout.hash_key, digest_size=16, person=b"identity"
        ).hexdigest()

    @property
    def max_keys(self) -> int:
        return self._layout.max_keys

    @property
    def bytes_per_key(self) -> int:
        return self._layout.bytes_per_key

    @property
    def evictions(self) -> int:
        """How many live keys have been evicted, by all processes."""
        return int(self._mapped.count_at(EVICTIONS_AT))

    @property
    def recoveries(self) -> int:
        """How often a process died within a decision, and another one took over."""
        return int(self._mapped.count_at(RECOVERIES_AT))

    @property
    def repairs(self) -> int:
        """How often something in the file was damaged and started afresh."""
        return int(self._mapped.count_at(REPAIRS_AT))

    def close(self) -> None:
        """Close the file. State stays in it; the store cannot be used any more."""
        self._mapped.close()

    def __enter__(self) -> SharedMemoryStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SharedMemoryStore {str(self._path)!r}>"


def sizes(max_keys: int | None = None, bytes_per_key: int | None = None) -> Layout:
    """The layout of a new file of these sizes; ValueError if they make no sense."""
    max_keys = DEFAULT_MAX_KEYS if max_keys is None else max_keys
    bytes_per_key = DEFAULT_BYTES_PER_KEY if bytes_per_key is None else bytes_per_key
    if type(max_keys) is not int or not 1 <= max_keys <= MOST_KEYS:
        raise ValueError(f"max_keys is a whole number from 1 to 2**31, not {max_keys!r}")
    row = bytes_per_key
    if type(row) is not int or row % 8 or not LEAST_ROW <= row <= MOST_ROW:
        raise ValueError(f"bytes_per_key is a multiple of 8 from 16 to 2**26, not {row!r}")
    return Layout.for_keys(max_keys, row, _CORE)


def bytes_needed(limit: Limit) -> int:
    """The size of a key under this limit: its hash, and its row at its longest."""
    return 8 * (build(limit).most_words + 1)


def new_memory_file(max_keys: int, bytes_per_key: int) -> int:
    """The descriptor of a file without a name, for this process and those that inherit it."""
    if not LINUX:
        raise StoreError("shared memory needs Linux; Redis works everywhere")
    return memory_file(sizes(max_keys, bytes_per_key))
