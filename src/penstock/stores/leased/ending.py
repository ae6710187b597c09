"""What becomes of leases when a process forks, or is told to end.

A fork: the child begins without leases. Those of the parent stay with it, which goes on spending
them, so nothing has to be given back.

A signal: Python ends without cleaning up if nothing handles SIGTERM, and leases expire. A library
must not take a signal from its program, so this is done only on request: `return_on_signal`.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from types import FrameType
from typing import Protocol

# A server that does not answer does not hold up the end for longer, in seconds.
_PATIENCE = 1.0


class Leasing(Protocol):
    """A `LeasedStore`."""

    def give_back(self) -> None: ...
    def after_fork(self) -> None: ...


_stores: weakref.WeakSet[Leasing] = weakref.WeakSet()


def begin_anew_after_fork(store: Leasing) -> None:
    _stores.add(store)


def return_on_signal(store: Leasing, signum: int) -> None:
    """See `LeasedStore.return_on_signal`."""
    former = signal.getsignal(signum)
    if former is None:
        raise ValueError(f"signal {signum} has a handler that is not Python's: it cannot be kept")
    known = weakref.ref(store)

    def give_back(number: int, frame: FrameType | None) -> None:
        store = known()
        if store is not None:
            # In another thread: this one may be giving back already, and hold the lock.
            thread = threading.Thread(target=store.give_back, name="penstock-return", daemon=True)
            thread.start()
            thread.join(_PATIENCE)
        if callable(former):
            former(number, frame)
        elif former != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signum, give_back)


def _after_fork() -> None:
    for store in _stores:
        store.after_fork()


os.register_at_fork(after_in_child=_after_fork)
