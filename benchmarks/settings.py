"""What a contender is set up for."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Names = dict[str, Any]  # what a contender's call refers to

SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


class Unavailable(Exception):
    """This contender cannot take part; the text says why."""


@dataclass(frozen=True)
class Setup:
    """``amount`` units per ``per``, for so many keys; ``clock`` and ``path`` are Penstock's.

    ``url`` is the Redis server's, for those who share their state.
    """

    amount: int
    per: str
    max_keys: int = 1
    clock: Any = None
    path: str | None = None
    url: str = ""

    @property
    def seconds(self) -> int:
        return SECONDS[self.per]

    @property
    def many(self) -> bool:
        return self.max_keys > 1


def scratch_file() -> str:
    """A path in memory, gone when the process ends."""
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="penstock-", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(Path(folder, "store"))
