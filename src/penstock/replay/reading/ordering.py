"""Puts the requests of all files into the order of time.

A reader promises that nothing comes that is older than its newest request by more than a
*horizon*: servers write some seconds late, and those that write at the end of a request as late
as it took. So everything before the lowest of these marks can go on; the rest is kept. A request
that is later still is decided at the time that the replay has reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from penstock.replay.reading.blocks import BLOCK, Block, not_before, spread

SECOND = 1_000_000_000
_NEVER = 1 << 63


class BlockReader(Protocol):
    """Reads one file."""

    horizon: int
    newest: int

    def read(self, block: Block) -> bool:
        """Add requests to a block until it is full; whether there were any."""


class Ordering:
    """``spread_seconds``: requests of one second are spread over it. ``late`` counts those that
    came too late for their place. ``new_block`` makes empty blocks."""

    def __init__(
        self,
        readers: Sequence[BlockReader],
        new_block: Callable[[], Block],
        *,
        spread_seconds: bool,
    ) -> None:
        self._readers = list(readers)
        self._new_block = new_block
        self._spread = spread_seconds
        self.late = 0

    def blocks(self) -> Iterator[Block]:
        """Blocks in the order of time. Each is good until the next one is asked for."""
        if not self._readers:
            return
        marks = [0] * len(self._readers)
        kept, spare = self._new_block(), self._new_block()
        reached = 0
        while min(marks) < _NEVER or kept.n:
            at = min(range(len(marks)), key=marks.__getitem__)
            if marks[at] < _NEVER:
                reader = self._readers[at]
                kept.make_room(kept.n + BLOCK // 2)
                marks[at] = max(0, reader.newest - reader.horizon) if reader.read(kept) else _NEVER
            until = min(marks)
            if self._spread and until < _NEVER:
                until -= until % SECOND  # a second must be complete
            kept = kept.in_order()
            end = _first_from(kept, until)
            if until < _NEVER and (end == 0 or (end < BLOCK // 4 and kept.n < 4 * BLOCK)):
                continue
            spare.take(kept, end, kept.n)
            kept.n = end
            if end:
                self.late += not_before(kept.times, end, reached)
                if self._spread:
                    spread(kept.times, end)
                reached = kept.times[end - 1]
                yield kept
            kept, spare = spare, kept


def _first_from(block: Block, time: int) -> int:
    """How many requests come before ``time``."""
    low, high = 0, block.n
    while low < high:
        middle = (low + high) // 2
        if block.times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low
