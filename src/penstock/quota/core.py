"""The steps of a ledger's flows, and the threads that do them.

A flow (`flows.py`) yields `Write` and `Read` steps. Both kinds of ledger hand them to the same
two threads; `Ledger` blocks until a step is done, `AsyncLedger` awaits it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.clock import Clock
from penstock.quota.batch import Cache, apply
from penstock.quota.databases.base import Conflict, Database, Interrupted, Snapshot
from penstock.quota.errors import LedgerUnavailable, QuotaError
from penstock.quota.near_empty import Watch
from penstock.quota.operations import Operation
from penstock.quota.worker import Call, TaskCall, ThreadCall, Worker

# How often an operation that met another writer is tried again.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Write:
    operation: Operation


@dataclass(frozen=True, slots=True)
class WriteMany:
    """Several in one transaction. The answer is a list: what each has returned or raised."""

    operations: Sequence[Operation]


@dataclass(frozen=True, slots=True)
class Read:
    """``function`` is called with the ledger at one moment.

    ``lasts`` is how long it may take, in seconds, if that is longer than the deadline.
    """

    function: Callable[[Snapshot], Any]
    lasts: float = 0.0


Step = Write | WriteMany | Read


class Core:
    """A database and the two threads that use it.

    The database has ``deadline`` seconds for a group of calls, with a new connection and a second
    try. So a caller waits for that long at most, after the group before its own.
    """

    def __init__(
        self, database: Database, clock: Clock | None, deadline: float, watch: Watch
    ) -> None:
        self.database = database
        self.clock = clock
        self._deadline = deadline
        self._watch = watch
        self._forking = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._cache = Cache()
        self._writer = Worker("penstock-ledger-writer", self._write, self.database.close_writer)
        self._reader = Worker("penstock-ledger-reader", self._read, self.database.close_reader)

    def do(self, step: Step) -> Any:
        call = ThreadCall(step)
        self._worker(step).submit(call)
        return call.wait()

    async def do_async(self, step: Step) -> Any:
        call = TaskCall(step)
        self._worker(step).submit(call)
        return await call.wait()

    def _worker(self, step: Step) -> Worker:
        if self._pid != os.getpid():
            with self._forking:
                if self._pid != os.getpid():
                    self.database.after_fork()
                    self._start()
        return self._reader if isinstance(step, Read) else self._writer

    def close(self) -> None:
        if self._pid == os.getpid():
            self._writer.close()
            self._reader.close()

    def _write(self, calls: list[Call]) -> None:
        """A group in one transaction; if that is refused, each call in its own."""
        try:
            self._transact(calls)
        except (QuotaError, Interrupted) as error:
            for call in calls:
                call.error = _unavailable(error)
        except Exception as error:
            if len(calls) == 1:
                calls[0].error = _unavailable(error)
                return
            for number, call in enumerate(calls):
                self._write([call])
                if isinstance(call.error, LedgerUnavailable):  # as it is for the others
                    for other in calls[number + 1 :]:
                        other.error = call.error
                    return

    def _transact(self, calls: list[Call]) -> None:
        operations: list[Operation] = []
        for call in calls:
            if type(call.what) is Write:
                operations.append(call.what.operation)
            else:
                operations += call.what.operations
        interrupted = False
        until = time.monotonic() + self._deadline
        watch = self._watch if self._watch else None
        for tries_left in reversed(range(_TRIES)):
            try:
                with self.database.writing(until) as transaction:
                    outcomes, committed = apply(
                        transaction, operations, self.clock, self._cache, watch
                    )
                committed()
                break
            except Conflict:
                if not tries_left or len(calls) > 1:
                    raise
            except Interrupted:
                # The server was restarted, perhaps. All operations can be repeated.
                if interrupted or time.monotonic() >= until:
                    raise
                interrupted = True
        at = 0
        for call in calls:
            if type(call.what) is not Write:
                count = len(call.what.operations)
                call.result = outcomes[at : at + count]
                at += count
                continue
            outcome = outcomes[at]
            at += 1
            if isinstance(outcome, Exception):
                call.error = outcome
            else:
                call.result = outcome

    def _read(self, calls: list[Call]) -> None:
        for call in calls:
            until = time.monotonic() + max(self._deadline, call.what.lasts)
            for last in (False, True):
                try:
                    with self.database.reading(until) as snapshot:
                        call.result = call.what.function(snapshot)
                    break
                except Interrupted as error:
                    if last or time.monotonic() >= until:
                        call.error = _unavailable(error)
                        break
                except Exception as error:
                    call.error = error
                    break


def _unavailable(error: Exception) -> Exception:
    if isinstance(error, Interrupted):
        return LedgerUnavailable(f"{error}; the operation can be repeated")
    if isinstance(error, Conflict):
        return QuotaError(f"the database refused it: {error}")
    return error
