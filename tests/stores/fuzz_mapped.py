"""Damages files of `SharedMemoryStore`, at rest and in use: it must bear it all.

    python tests/stores/fuzz_mapped.py --count 10000     or --minutes 10
    python tests/stores/fuzz_mapped.py --only 4711       once more what was found before

An input is a small file with some keys in it, in which bytes of the header, the locks, the
journals, the hashes or the rows were changed, or which was cut off; before it is opened, or
while it is in use. Whatever it is, every verb answers or raises a `StoreError`, nothing runs
on for ever, and a key that was reset has its whole limit again.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import random
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock import Limit, SharedMemoryStore, StoreError, StoreFileError, _mode
from penstock.stores import layout
from penstock.stores.base import Store

LIMITS = (
    "5/hour",
    "5/hour leaky_bucket",
    "20/minute debt 5",
    "5/hour fixed_window",
    "5/second fixed_window align first_hit",
    "7/minute sliding_window",
    "7/minute sliding_window cells 3",
    "6/hour sliding_log",
    "3/10ms sliding_log",
    "5/hour sliding_log count_rejected",
    "5/hour lockout 1h",
    "3/second sliding_log lockout 10s",
    "4/hour sliding_log soft 3 for 1m",
    "4/hour sliding_window soft 3 for 1m lockout 1h",
)
KEYS, ROW = 40, 512
EXTREME = (0, 1, -1, 2, 31, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**63), -(2**62), 8, 4096)


class Found(Exception):
    """Something that the store does not bear."""


class Damage:
    """Changes a file, as the dice have it."""

    def __init__(self, path: Path, dice: random.Random) -> None:
        self._path = path
        self._dice = dice
        self._layout = layout.Layout(_core(), KEYS, ROW // 8 - 1, b"")
        self.locked = False  # somebody seems to hold a lock: who wants it waits for a second

    def at_rest(self) -> None:
        self._change([self._header, self._locks, *self._inside(), self._anywhere, self._cut])

    def in_use(self) -> None:
        kinds = [self._clock, *self._inside()]
        kinds += [self._cut] if self._dice.random() < 0.1 else []
        self.locked = self._dice.random() < 0.005
        kinds += [self._locks] if self.locked else []
        self._change(kinds)

    def _inside(self) -> list[Callable[[], None]]:
        return [self._journal, self._journal_of_rows, self._rows, self._rows, self._hashes]

    def _change(self, kinds: list[Callable[[], None]]) -> None:
        for _ in range(self._dice.choice([1, 1, 2, 5, 30])):
            self._dice.choice(kinds)()

    def _put(self, at: int, data: bytes) -> None:
        with self._path.open("r+b") as file:
            file.seek(0, os.SEEK_END)
            if at + len(data) <= file.tell():
                file.seek(at)
                file.write(data)

    def _word(self) -> bytes:
        value = self._dice.choice(
            [*EXTREME, time.time_ns(), self._dice.randrange(self._layout.file_bytes), None, None]
        )
        return self._dice.randbytes(8) if value is None else struct.pack("=q", value)

    def _header(self) -> None:
        self._put(self._dice.randrange(200), self._dice.randbytes(self._dice.choice([1, 8])))

    def _clock(self) -> None:
        at = [layout.OFFSET_AT, layout.SEEN_AT, layout.EVICTIONS_AT, layout.RECOVERIES_AT]
        self._put(self._dice.choice([*at, layout.REPAIRS_AT, layout.BOOT_AT]), self._word())

    def _stripe(self) -> int:
        return layout.PAGE + self._dice.randrange(self._layout.stripes) * self._layout.stripe_bytes

    def _locks(self) -> None:
        self._put(self._stripe() + 4 * self._dice.randrange(10), self._word()[:4])

    def _journal(self) -> None:
        at = self._stripe() + layout.LOCK_BYTES
        self._put(at, self._word())
        self._put(at + 8, self._word())

    def _journal_of_rows(self) -> None:
        """One that names a place near a row, with words that were never there."""
        at = self._stripe() + layout.LOCK_BYTES
        row = self._row() + self._dice.choice([0, 0, 0, 8, -8, 4, 8 * self._layout.row_words])
        words = self._dice.choice([1, self._layout.row_words, self._layout.row_words + 1, 0])
        self._put(at, struct.pack("=qq", row, words))
        self._put(at + 16, b"".join(self._word() for _ in range(10)))

    def _set(self) -> int:
        index = self._dice.randrange(self._layout.sets)
        return self._layout.sets_at + index * self._layout.set_bytes

    def _row(self) -> int:
        way = self._dice.randrange(layout.WAYS)
        return self._set() + 8 * (layout.WAYS + way * self._layout.row_words)

    def _rows(self) -> None:
        """Of all keys, which are few: one word of each, or a word of one."""
        word = self._dice.randrange(16)
        for index in range(self._layout.sets):
            start = self._layout.sets_at + index * self._layout.set_bytes
            for way in range(layout.WAYS):
                row = start + 8 * (layout.WAYS + way * self._layout.row_words)
                self._put(row + 8 * word, self._word())

    def _hashes(self) -> None:
        self._put(self._set() + 8 * self._dice.randrange(layout.WAYS), self._word())

    def _anywhere(self) -> None:
        size = self._dice.choice([1, 8, 100, 4096])
        self._put(self._dice.randrange(self._layout.file_bytes), self._dice.randbytes(size))

    def _cut(self) -> None:
        whole = self._layout.file_bytes
        os.truncate(self._path, self._dice.choice([0, 1, 4096, 8192, self._dice.randrange(whole)]))
        if self._dice.random() < 0.3:
            os.truncate(self._path, whole)


def _core() -> int:
    return layout.COMPILED_CORE if _mode.COMPILED else layout.PURE_CORE


def use(store: Store, dice: random.Random) -> None:
    """A verb that any application might ask for."""
    counters = store.counters(Limit.parse(dice.choice(LIMITS)))
    key, cost = f"key {dice.randrange(6)}", dice.choice([1, 1, 2, 5, 100])
    verb = dice.randrange(9)
    with contextlib.suppress(StoreError):
        if verb <= 3:
            repr(counters.hit(key, cost))
        elif verb == 4:
            repr(counters.peek(key, cost))
        elif verb == 5:
            counters.refund(key, cost)
        elif verb == 6:
            counters.charge(key, cost)
        elif verb == 7:
            limits = map(Limit.parse, dice.sample(LIMITS, 3))
            store.hit_each([(store.counters(limit), key, cost) for limit in limits])
        else:
            counters.reset(key)
            decision = counters.hit(key, 1)
            if not decision:
                raise Found(f"refused, although it was just reset: {decision!r}")


def throw(number: int, folder: Path) -> None:
    dice = random.Random(number)
    path = folder / "store"
    path.unlink(missing_ok=True)
    damage = Damage(path, dice)
    with SharedMemoryStore(path, max_keys=KEYS, bytes_per_key=ROW) as store:
        for _ in range(30):
            use(store, dice)
        if store.repairs:
            raise Found(f"a sound file was repaired {store.repairs} times")
    if dice.random() < 0.5:
        damage.at_rest()
    with contextlib.suppress(StoreFileError), SharedMemoryStore(path) as store:
        for _ in range(dice.choice([1, 5, 20])):
            damage.in_use()
            for _ in range(2 if damage.locked else dice.choice([1, 5, 30])):
                use(store, dice)
            if damage.locked:
                break
        with contextlib.suppress(StoreError):
            repr((store.repairs, store.evictions, store.recoveries))


@contextlib.contextmanager
def new_folder() -> Iterator[Path]:
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shm) as name:
        yield Path(name)


def run(count: int | None, until: float, start: int = 0, tell: bool = False) -> int:
    """Inputs from ``start`` on; how many it were. What goes wrong is told with its input."""
    number = start
    with new_folder() as folder:
        while (count is None or number < start + count) and time.monotonic() < until:
            faulthandler.dump_traceback_later(60, exit=True)  # an input that never ends
            try:
                throw(number, folder)
            except Exception as error:
                raise Found(f"input {number}: {error!r}") from error
            number += 1
            if tell and number % 1000 == 0:
                print(number, flush=True)
        faulthandler.cancel_dump_traceback_later()
    return number - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Damages files of SharedMemoryStore.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--start", type=int, default=0, help="the number of the first input")
    parser.add_argument("--only", type=int, help="the number of one input")
    args = parser.parse_args()
    faulthandler.enable()
    start, count = (args.start, args.count) if args.only is None else (args.only, 1)
    until = time.monotonic() + (args.minutes * 60 if args.count is None else 1e9)
    print(f"{run(count, until, start, True)} inputs, nothing found ({_mode.describe()})")


if __name__ == "__main__":
    main()
