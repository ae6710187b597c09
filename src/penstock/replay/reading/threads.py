"""Scans a file by several threads, chunk by chunk, each without the GIL.

A scanner has texts and numbers of its own. What it finds new it hands over with its chunk, and the
numbers are translated when the chunk's turn comes. So texts are numbered in the order of the file,
as by one thread.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from penstock.replay.reading.blocks import BLOCK, Block, Interner, Scanner, translate

# A thread's turn is some milliseconds long: enough to forget what changing turns costs.
CHUNK = 4 << 20
_SHORTEST_LINE = 16  # of one that is a request: it has a time


@dataclass(slots=True)
class _Worker:
    """A scanner with what it knows. ``tables`` are from its numbers to those of all."""

    scanner: Scanner
    interners: list[Interner]
    tables: list[array[int]]
    block: Block


@dataclass(slots=True)
class _Scanned:
    """One chunk, scanned."""

    worker: _Worker
    block: Block
    texts: list[list[bytes]]  # for each column, those that are new to the worker
    lines: int
    malformed: int
    shown: list[tuple[int, bytes]]
    at: int = field(default=0)  # how much of the block was taken


class ThreadedScanner:
    """As `Scanner`, for all chunks of a file. ``make(interners)`` makes a scanner."""

    def __init__(
        self,
        threads: int,
        make: Callable[[list[Interner]], Scanner],
        interners: list[Interner],
        numbers: int,
        chunks: Iterator[memoryview],
    ) -> None:
        self.lines = self.malformed = 0
        self.shown: list[tuple[int, bytes]] = []
        self._interners = interners
        self._chunks = chunks
        self._pool = ThreadPoolExecutor(threads, "penstock-scan")
        self._free: SimpleQueue[_Worker] = SimpleQueue()
        self._waiting: deque[Future[_Scanned]] = deque()
        self._taken: _Scanned | None = None
        for _ in range(threads):
            own = [Interner() for _ in interners]
            tables = [array("i", [0]) for _ in interners]
            self._free.put(_Worker(make(own), own, tables, Block(len(own), numbers)))
        for _ in range(threads):
            self._submit()

    def fill(self, block: Block) -> bool:
        """Add requests to a block until it is full; whether the file has more."""
        while block.n < len(block.times):
            if self._taken is None:
                self._taken = self._next()
                if self._taken is None:
                    return False
            self._take(self._taken, block)
        return True

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self) -> None:
        chunk = next(self._chunks, None)
        if chunk is not None:
            self._waiting.append(self._pool.submit(self._scan, chunk))

    def _scan(self, chunk: Any) -> _Scanned:
        worker = self._free.get()
        scanner, lines, malformed = worker.scanner, worker.scanner.lines, worker.scanner.malformed
        known, shown = [len(each) for each in worker.interners], len(scanner.shown)
        block = Block(len(worker.interners), len(worker.block.numbers), 0)
        block.make_room(min(BLOCK, len(chunk) // _SHORTEST_LINE + 1))
        end = 0
        while end < len(chunk):
            end = scanner.scan(chunk, end, block)
            if end < len(chunk):
                block.make_room(2 * len(block.times))
        texts = [
            [each.text(number) or b"" for number in range(start, len(each))]
            for each, start in zip(worker.interners, known, strict=True)
        ]
        out = _Scanned(
            worker, block, texts, scanner.lines - lines, scanner.malformed - malformed,
            [(line - lines, text) for line, text in scanner.shown[shown:]],
        )  # fmt: skip
        self._free.put(worker)
        return out

    def _next(self) -> _Scanned | None:
        if not self._waiting:
            self.close()
            return None
        scanned = self._waiting.popleft().result()
        self._submit()
        for table, interner, texts in zip(
            scanned.worker.tables, self._interners, scanned.texts, strict=True
        ):
            table.extend([interner.number(text) for text in texts])
        if len(self.shown) < 5:
            self.shown += [(self.lines + line, text) for line, text in scanned.shown]
        self.lines += scanned.lines
        self.malformed += scanned.malformed
        return scanned

    def _take(self, scanned: _Scanned, block: Block) -> None:
        source, start = scanned.block, scanned.at
        count = min(source.n - start, len(block.times) - block.n)
        end = block.n + count
        block.times[block.n : end] = source.times[start : start + count]
        for mine, theirs, table in zip(
            block.words, source.words, scanned.worker.tables, strict=True
        ):
            translate(theirs, start, count, table, mine, block.n)
        for mine, theirs in zip(block.numbers, source.numbers, strict=True):
            mine[block.n : end] = theirs[start : start + count]
        block.n = end
        scanned.at += count
        if scanned.at == source.n:
            self._taken = None
