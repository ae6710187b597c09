"""The layout of a shared-memory file: the same for both cores, except for the locks.

::

    header    one page: sizes, the hash key, the clock
    stripes   a lock and a journal each, for some of the sets
    sets      WAYS hashes, then WAYS rows

The hash of a key chooses its set, and each set is under one stripe's lock. Before a row is
changed, it is copied to the stripe's journal. If the process dies half-way, the next holder of
the lock restores it. The two lowest bits of a hash are the key's level (see ``levels.py``).

The file may be damaged: what is read from it is checked before it is used as an offset or a
length. The fixed part of the header and the clock are read once, when the file is opened.
Numbers are native 64-bit words, as the file belongs to one machine.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import StoreFileError

MAGIC = b"PENSTOCK"
VERSION = 2
COMPILED_CORE, PURE_CORE = 1, 2

WAYS = 32
FILL = 20  # keys of a set when the store is full: more would crowd some sets out
PAGE = 4096
MOST_STRIPES = 1024
MOST_KEYS = 2**31
LEAST_ROW, MOST_ROW = 16, 2**26  # bytes a key: the longest sliding_log needs 16 MB

# Offsets in the header, behind its checked part.
_FIXED = struct.Struct("=8s II QQQQQ 16s")
FIXED_SIZE = _FIXED.size + 4
BOOT_AT = 128  # 16 bytes
OFFSET_AT = 144  # logical time = monotonic clock + offset
SEEN_AT = 152  # the latest logical time that was noted
EVICTIONS_AT = 160
RECOVERIES_AT = 168
REPAIRS_AT = 176
LATEST = 2**62  # nanoseconds: the year 2116. No clock of a sound file is beyond it

LOCK_BYTES = 64


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes and offsets in bytes, computed from the fixed part of the header."""

    core: int
    max_keys: int
    row_words: int
    hash_key: bytes

    @classmethod
    def for_keys(cls, max_keys: int, bytes_per_key: int, core: int) -> Layout:
        return cls(core, max_keys, bytes_per_key // 8 - 1, os.urandom(16))

    @property
    def bytes_per_key(self) -> int:
        return 8 * (self.row_words + 1)

    @property
    def sets(self) -> int:
        return -(-self.max_keys // FILL)

    @property
    def stripes(self) -> int:
        return min(self.sets, MOST_STRIPES)

    @property
    def stripe_bytes(self) -> int:
        """A lock, then the journal: which row, how many words, and the words."""
        size = LOCK_BYTES + 16 + 8 * self.row_words
        return -(-size // 64) * 64

    @property
    def sets_at(self) -> int:
        return -(-(PAGE + self.stripes * self.stripe_bytes) // PAGE) * PAGE

    @property
    def set_bytes(self) -> int:
        return WAYS * 8 * (1 + self.row_words)

    @property
    def file_bytes(self) -> int:
        return self.sets_at + self.sets * self.set_bytes

    def is_row(self, at: int) -> bool:
        """Whether a row begins at this byte of the file."""
        offset = at - self.sets_at
        if not 0 <= offset < self.sets * self.set_bytes:
            return False
        inside = offset % self.set_bytes - 8 * WAYS
        return inside >= 0 and inside % (8 * self.row_words) == 0

    def fixed(self) -> bytes:
        """The part of the header that never changes, with its checksum."""
        fixed = _FIXED.pack(
            MAGIC, VERSION, self.core, self.max_keys, FILL, WAYS, self.row_words,
            self.file_bytes, self.hash_key,
        )  # fmt: skip
        return fixed + struct.pack("=I", zlib.crc32(fixed))

    def header(self) -> bytes:
        """The first page of a new file."""
        page = bytearray(PAGE)
        page[:FIXED_SIZE] = self.fixed()
        page[BOOT_AT : BOOT_AT + 16] = boot_id()
        struct.pack_into("=qq", page, OFFSET_AT, time.time_ns() - time.monotonic_ns(), 0)
        return bytes(page)


def read_layout(page: bytes, size: int, path: Path, core: int) -> Layout:
    """The layout in a file's first page, or an error that says why it cannot be used."""
    if len(page) < FIXED_SIZE:
        raise StoreFileError(
            f"{path} is cut off: it has {size} bytes, less than its header; delete it"
        )
    _, version, made_by, max_keys, fill, ways, row_words, file_bytes, key = _FIXED.unpack_from(page)
    if version != VERSION:
        raise StoreFileError(
            f"{path} has layout version {version}, this Penstock reads {VERSION}:"
            " delete it or use another path"
        )
    (checksum,) = struct.unpack_from("=I", page, _FIXED.size)
    if checksum != zlib.crc32(page[: _FIXED.size]):
        raise StoreFileError(f"{path} is damaged: the checksum of its header is wrong; delete it")
    layout = Layout(made_by, max_keys, row_words, key)
    sizes_make_sense = (
        (fill, ways) == (FILL, WAYS)
        and 1 <= max_keys <= MOST_KEYS
        and LEAST_ROW <= layout.bytes_per_key <= MOST_ROW
        and file_bytes == layout.file_bytes
    )
    if not sizes_make_sense:
        raise StoreFileError(f"{path} is damaged: its sizes make no sense; delete it")
    if size != file_bytes:
        raise StoreFileError(
            f"{path} is cut off or damaged: {size} bytes, not {file_bytes}; delete it"
        )
    if made_by != core:
        names = {COMPILED_CORE: "compiled", PURE_CORE: "pure Python"}
        raise StoreFileError(
            f"{path} was made by the {names.get(made_by, 'unknown')} core, this is the"
            f" {names[core]} one, which locks it otherwise: use another path"
        )
    return layout


def boot_id() -> bytes:
    """Changes at every boot, as the monotonic clock does."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text()
        return bytes.fromhex(text.strip().replace("-", ""))
    except (OSError, ValueError):
        # No such file outside Linux: the time of the boot, to ten seconds.
        started = (time.time_ns() - time.monotonic_ns()) // 10_000_000_000
        return started.to_bytes(16, "big", signed=True)


def carry_clock(page: bytearray) -> bool:
    """Set the clock after a reboot; returns whether it was damaged.

    It continues from the wall clock, but never before the latest time that was recorded.
    """
    offset, seen = struct.unpack_from("=qq", page, OFFSET_AT)
    damaged = not (clock_makes_sense(offset) and 0 <= seen < LATEST)
    if damaged:
        seen = 0
    elif bytes(page[BOOT_AT : BOOT_AT + 16]) == boot_id():
        return False
    offset = max(seen, time.time_ns()) - time.monotonic_ns()
    struct.pack_into("=qq", page, OFFSET_AT, offset, seen)
    page[BOOT_AT : BOOT_AT + 16] = boot_id()
    return damaged


def clock_makes_sense(offset: int) -> bool:
    return 0 <= offset + time.monotonic_ns() < LATEST
