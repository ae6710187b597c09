"""What every backend can do, as flows: generators that yield what blocks, and are sent the answer.

A step is a function that may block, such as a write to disk, or a command for a server. `run`
executes the steps of a flow for threads, `run_async` for tasks. So each operation is written
once.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from penstock.kv.record import Record, Write

T = TypeVar("T")
# Yields steps, which only its backend understands.
Flow = Generator[Any, Any, T]


@dataclass(frozen=True, slots=True)
class Position:
    """How far a follower has come: the store's epoch, and the last write that it has seen.

    An epoch begins with an empty store. The token tells apart two writes with one revision.
    """

    epoch: str = ""
    revision: int = 0
    token: str = ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The writes after a position, or None if the log does not have them all any more.

    ``now`` is the store's time in milliseconds, ``revision`` its last revision. If ``position``
    is below that, there is more to fetch.
    """

    now: int
    revision: int
    position: Position
    records: Sequence[Record] | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All records at one position, without those that have expired."""

    now: int
    position: Position
    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Written:
    """``record`` is None if there was nothing to delete."""

    record: Record | None
    now: int


class Wakeups(Protocol):
    """Tells a follower that something may have changed. What is lost costs one poll."""

    async def open(self) -> None: ...

    async def wait(self, seconds: float) -> bool:
        """Returns after this time (False), or earlier if something may have changed (True)."""

    def wake(self) -> None:
        """End the wait; from any thread."""

    async def close(self) -> None: ...


class Backend(Protocol):
    """Where entries live. All times are the backend's own, in milliseconds."""

    # Whether it is read directly: there is nothing between a reader and the store.
    direct: bool
    name: str
    # Seconds between two looks at the log when nothing wakes the follower.
    poll: float

    def write(self, write: Write) -> Flow[Written]:
        """`RevisionConflict` if the key is not at the expected revision."""

    def read(self, key: str) -> Flow[tuple[Record | None, int]]:
        """The record, unless it has expired; and the last revision of the store."""

    def fetch(self, position: Position) -> Flow[Fetched]: ...

    def snapshot(self, prefix: str = "") -> Flow[Snapshot]: ...

    def history(self, prefix: str, limit: int, before: int | None) -> Flow[list[Record]]:
        """Writes, the newest first; ``before`` is a revision."""

    def wakeups(self) -> Wakeups: ...

    def run(self, flow: Flow[T]) -> T: ...

    async def run_async(self, flow: Flow[T]) -> T: ...

    def close(self) -> None: ...

    async def aclose(self) -> None: ...


def fetched(
    now: int, epoch: str, revision: int, position: Position, records: list[Record]
) -> Fetched:
    """From the log, beginning with the write at the position.

    The log has all that follows only if it still has that write, and no other in its place.
    """
    trimmed = Fetched(now, revision, position, None)
    if position.epoch != epoch or revision < position.revision:
        return trimmed
    known = [record for record in records[:1] if record.revision == position.revision]
    if position.token and (not known or known[0].token != position.token):
        return trimmed
    after = records[len(known) :]
    if not after:
        return trimmed if revision > position.revision else Fetched(now, revision, position, [])
    if after[0].revision != position.revision + 1:
        return trimmed
    return Fetched(now, revision, Position(epoch, after[-1].revision, after[-1].token), after)
