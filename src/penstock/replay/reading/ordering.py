"""Puts the requests of all files into the order of time.

A reader promises that nothing comes that is older than its newest request by more than a
*horizon*: servers write some seconds late, and those that write at the end of a request as late
as it took. So everything before the lowest of these marks can go on; the rest is kept. A request
that is later still is decided at the time that the replay has reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from penstock.replay.reading.blocks import BLOCK, Block, not_before, spread

SECOND = 1_000_000_000
_NEVER = 1 << 63


class BlockReader(Protocol):
    """Reads one file."""

    horizon: int
    newest: int

    def next_block(self) -> Block | None: ...


class Ordering:
    """``spread_seconds``: requests of one second are spread over it. ``late`` counts those that
    came too late for their place."""

    def __init__(self, readers: Sequence[BlockReader], *, spread_seconds: bool) -> None:
        self._readers = list(readers)
        self._spread = spread_seconds
        self.late = 0

    def blocks(self) -> Iterator[Block]:
        marks = [0] * len(self._readers)
        kept: Block | None = None
        reached = 0
        while True:
            at = min(range(len(marks)), key=marks.__getitem__) if marks else 0
            block = self._readers[at].next_block() if marks and marks[at] < _NEVER else None
            if block is None:
                if not marks or marks[at] >= _NEVER:
                    break
                marks[at] = _NEVER
            else:
                marks[at] = max(0, self._readers[at].newest - self._readers[at].horizon)
                if kept is None:
                    kept = block
                else:
                    kept.append(block)
            if kept is None:
                continue
            until = min(marks)
            if self._spread and until < _NEVER:
                until -= until % SECOND  # a second must be complete
            kept = kept.in_order()
            end = _first_from(kept, until)
            if end == 0 or (end < BLOCK // 4 and until < _NEVER and kept.n < 4 * BLOCK):
                continue
            rest = kept.part(end, kept.n) if end < kept.n else None
            kept.n = end
            self.late += not_before(kept.times, end, reached)
            if self._spread:
                spread(kept.times, end)
            reached = kept.times[end - 1]
            yield kept
            kept = rest


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
