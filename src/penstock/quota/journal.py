"""What this process has spent from stocks, in a file that survives it.

The totals are in a mapped file: a process that is killed loses nothing that it has written there,
because the pages belong to the system. (If the machine loses power, totals of the last seconds
may be lost. Then at most what the stocks held is unaccounted for: see `docs/design/ledger.md`.)

A process has two files, named by a word of its own, its *part*::

    <part>.totals   16 bytes for each stock: units taken, units given back, as 64-bit integers
    <part>.stocks   a line for each stock, JSON: which pair of totals is whose

The process holds a lock on its ``.totals`` as long as it lives. Another one that gets the lock
knows that it is dead, and reports for it: see `Journal.orphans`. The name begins with the *origin*
of its stocks, the store that they are in: the memory of a process, a shared file, a Redis.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import struct
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from penstock.errors import StoreFileError

_PAIR = struct.Struct("<qq")
# Pairs of totals in a new file. It grows by as many.
_ROOM = 4096
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
# When so many more lines than stocks were written, the lines are written anew.
_MOST_OLD_LINES = 10_000


class StockKey(NamedTuple):
    """A stock: of which account and meter, and the time that is its name."""

    account: str
    meter: str
    opened: int


class Totals(NamedTuple):
    taken: int
    given_back: int


class Journal:
    """The totals of one process, or those that a dead one has left."""

    def __init__(self, folder: Path, part: str, fd: int) -> None:
        self.part = part
        self._folder = folder
        self._fd = fd
        self._lock = threading.Lock()
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        self._places: dict[StockKey, int] = {}
        self._free: list[int] = []
        self._lines = 0
        self._used = 0
        for place, key in _read_stocks(folder / f"{part}.stocks"):
            self._used = max(self._used, place + 1)
            self._lines += 1
            if key is not None and (place + 1) * _PAIR.size <= len(self._map):
                self._places[key] = place

    @classmethod
    def create(cls, folder: Path, origin: str) -> Self:
        """A new one for this process, and a store."""
        make_folder(folder)
        part = f"{origin}-{uuid.uuid4().hex}"
        path = folder / f".{part}.new"
        fd = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, _ROOM * _PAIR.size)
            # With its name only when it is locked: nobody must take it for a dead one's.
            os.rename(path, folder / f"{part}.totals")
            return cls(folder, part, fd)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def orphans(cls, folder: Path) -> Iterator[Self]:
        """The journals of processes that have ended. The caller removes or closes them."""
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(folder.glob("*.totals")):
                journal = cls._adopted(folder, path)
                if journal is not None:
                    yield journal

    @property
    def origin(self) -> str:
        return self.part.partition("-")[0]

    @staticmethod
    def lives(folder: Path, origin: str, dead: Collection[str]) -> bool:
        """Whether a process has stocks of this origin, not counting these parts."""
        for path in folder.glob(f"{origin}-*.totals"):
            if path.stem in dead:
                continue
            try:
                fd = os.open(path, _FLAGS)
            except OSError:
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
            finally:
                os.close(fd)
        return False

    @classmethod
    def _adopted(cls, folder: Path, path: Path) -> Self | None:
        try:
            fd = os.open(path, _FLAGS)
        except OSError:
            return None  # another one was faster
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink and os.fstat(fd).st_size:
                return cls(folder, path.stem, fd)
        except OSError:
            pass
        os.close(fd)
        return None

    def add(self, key: StockKey, taken: int, given_back: int = 0) -> bool:
        """Add to the totals of a stock; whether it is a new one."""
        with self._lock:
            place = self._places.get(key)
            is_new = place is None
            if place is None:
                place = self._new_place(key)
            at = place * _PAIR.size
            before = _PAIR.unpack_from(self._map, at)
            _PAIR.pack_into(self._map, at, before[0] + taken, before[1] + given_back)
            return is_new

    def _new_place(self, key: StockKey) -> int:
        place = self._free.pop() if self._free else self._used
        if (place + 1) * _PAIR.size > len(self._map):
            os.ftruncate(self._fd, len(self._map) + _ROOM * _PAIR.size)
            self._map.resize(len(self._map) + _ROOM * _PAIR.size)
        # First no totals, then whose they are: a process killed in between leaves zeros.
        _PAIR.pack_into(self._map, place * _PAIR.size, 0, 0)
        self._append(place, key)
        self._used = max(self._used, place + 1)
        self._places[key] = place
        return place

    def totals(self) -> Mapping[StockKey, Totals]:
        with self._lock:
            return {
                key: Totals(*_PAIR.unpack_from(self._map, place * _PAIR.size))
                for key, place in self._places.items()
            }

    def of(self, key: StockKey) -> Totals:
        with self._lock:
            place = self._places.get(key)
            if place is None:
                return Totals(0, 0)
            return Totals(*_PAIR.unpack_from(self._map, place * _PAIR.size))

    def drop(self, key: StockKey, expected: Totals) -> bool:
        """Forget a stock whose totals are in the ledger; not if they have changed since."""
        with self._lock:
            place = self._places.get(key)
            if place is None or _PAIR.unpack_from(self._map, place * _PAIR.size) != expected:
                return False
            del self._places[key]
            self._append(place, None)
            self._free.append(place)
            if self._lines > 2 * len(self._places) + _MOST_OLD_LINES:
                self._write_anew()
            return True

    def _append(self, place: int, key: StockKey | None) -> None:
        self._lines += 1
        path = self._folder / f"{self.part}.stocks"
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, _line(place, key))
        finally:
            os.close(fd)

    def _write_anew(self) -> None:
        path = self._folder / f"{self.part}.stocks"
        new = path.with_suffix(".stocks.new")
        new.write_bytes(b"".join([_line(place, key) for key, place in self._places.items()]))
        os.replace(new, path)
        self._lines = len(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def close(self) -> None:
        """Leave the files to the next process: it reports what is in them."""
        with self._lock:
            if self._fd >= 0:
                self._map.close()
                os.close(self._fd)
                self._fd = -1

    def remove(self) -> None:
        """Everything in it has been reported."""
        for suffix in (".stocks", ".totals"):
            (self._folder / f"{self.part}{suffix}").unlink(missing_ok=True)
        self.close()


def _line(place: int, key: StockKey | None) -> bytes:
    return json.dumps([place, *(key or ())]).encode() + b"\n"


def _read_stocks(path: Path) -> Iterator[tuple[int, StockKey | None]]:
    """Which pair of totals is whose: the last line about a pair counts."""
    stocks: dict[int, StockKey | None] = {}
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return
    for line in text.split(b"\n")[:-1]:  # the last one is empty, or was cut off
        try:
            place, *key = json.loads(line)
            stocks[int(place)] = StockKey(*key) if key else None
        except (ValueError, TypeError):
            continue
    yield from stocks.items()


def make_folder(folder: Path) -> None:
    """A folder for this user alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise StoreFileError(
            f"cannot keep a journal in {folder}: {error.strerror or error}; choose another folder"
        ) from error
    if status.st_uid != os.geteuid() or not folder.is_dir() or folder.is_symlink():
        raise StoreFileError(
            f"cannot keep a journal in {folder}: it belongs to another user or is a link"
        )
