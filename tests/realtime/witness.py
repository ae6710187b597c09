"""Witness: a process that notes whether this machine lets processes run.

It is a process, and not a thread, because tests fork. It wants to run every ten milliseconds, and
notes by how much it was late, and how many threads were ready to run then.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, Self

# It counts as standing still to be so late, in seconds; and as crowded, in this part of the time,
# to have more than two threads ready to run for each processor.
LATE, CROWDED = 0.05, 0.2
_EVERY = 0.01
_CELLS = struct.Struct("=qqqq")  # looks, crowded ones, stalls, nanoseconds in them


class Seen(NamedTuple):
    """What it has seen since it was started, or between two moments."""

    looks: int
    crowded: int
    stalls: int
    stood_still: int

    def since(self, before: Seen) -> Seen:
        return Seen(*(now - then for now, then in zip(self, before, strict=True)))

    @property
    def disturbed(self) -> bool:
        return self.stalls > 0 or self.crowded > CROWDED * self.looks

    def __str__(self) -> str:
        return (
            f"the machine stood still for {self.stood_still / 1e9:.2f} s, and had"
            f" more than twice as much to do as it can in {self.crowded / max(1, self.looks):.0%}"
            " of the time"
        )


class Witness:
    def __enter__(self) -> Self:
        with tempfile.TemporaryFile() as file:
            file.truncate(mmap.PAGESIZE)
            self._cells = mmap.mmap(file.fileno(), mmap.PAGESIZE)
            # It ends when we close its stdin, or are gone.
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(file.fileno()), str(os.getpid())],
                stdin=subprocess.PIPE, pass_fds=[file.fileno()], start_new_session=True,
            )  # fmt: skip
        self._wait_for(1)  # what happens before it looks is not seen
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.process.communicate()

    def now(self) -> Seen:
        return Seen(*_CELLS.unpack_from(self._cells))

    def seen(self) -> Seen:
        """After two more looks: a stall is known when it is over."""
        self._wait_for(self.now().looks + 2)
        return self.now()

    def _wait_for(self, looks: int) -> None:
        end = time.monotonic() + 10
        while self.now().looks < looks and time.monotonic() < end:
            time.sleep(_EVERY / 5)


def _ready_to_run() -> int:
    """How many threads of this machine, ours among them; 0 where nobody tells."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 0


def _watch(cells: mmap.mmap, parent: int) -> None:
    looks, crowded, stalls, stood_still = 0, 0, 0, 0
    while os.getppid() == parent:
        looks += 1
        crowded += _ready_to_run() > 2 * (os.cpu_count() or 1)
        due = time.monotonic_ns() + int(_EVERY * 1e9)
        if select.select([0], [], [], _EVERY)[0]:
            return
        late = time.monotonic_ns() - due
        if late > LATE * 1e9:
            stalls, stood_still = stalls + 1, stood_still + late
        _CELLS.pack_into(cells, 0, looks, crowded, stalls, stood_still)


if __name__ == "__main__":
    _watch(mmap.mmap(int(sys.argv[1]), mmap.PAGESIZE), int(sys.argv[2]))
