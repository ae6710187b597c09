"""The garbage collector is kept away from large rules, so that it does not stall decisions.

A full collection looks at every object while all threads wait: with 80,000 rules, for a second or
more, several times while they are loaded, and now and then afterwards. Rules and what is compiled
from them have no cycles, so they are freed without it when they are replaced.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# New objects from which on a collection would be felt: it takes about 10 ms.
MANY = 100_000

_lock = threading.Lock()
_pauses = 0


@contextmanager
def paused() -> Iterator[None]:
    """No collections meanwhile. If many objects were made, none of them is looked at again.

    May be nested, and be used by several threads and tasks at a time.
    """
    global _pauses
    with _lock:
        if not _pauses:
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses:
                if gc.get_count()[0] > MANY:  # it is counted also while nothing is collected
                    gc.freeze()
                gc.enable()
