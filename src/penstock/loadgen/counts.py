"""Counts: the answers, and how long they took.

Latencies are counted in buckets. Up to 4 ms a bucket is a microsecond wide, above that at most
a 2048th of the latency: percentiles are accurate to 0.05 %, with about ten thousand buckets at
most.

With a given rate, latency is measured from when a request was *due*, not from when it could be
sent. A generator that waits for a slow service, and sends less while it is slow, would
otherwise leave out exactly the requests that had to wait (coordinated omission).
"""

from __future__ import annotations

from collections import Counter

_BITS = 11
_FINE = 1 << (_BITS + 1)


class Counts:
    """Counts answers; with ``by_key`` also for each key, to check accuracy."""

    def __init__(self, keys: int) -> None:
        self.allowed = 0
        self.refused = 0
        self.errors: Counter[str] = Counter()
        self.allowed_by_key = [0] * keys
        self.asked_by_key = [0] * keys
        self.sent = 0
        self._cells: dict[int, int] = {}
        self._sum = 0.0
        self.longest = 0.0

    def answered(self, key: int, seconds: float, allowed: bool) -> None:
        if allowed:
            self.allowed += 1
            self.allowed_by_key[key] += 1
        else:
            self.refused += 1
        cell = cell_of(int(seconds * 1e6))
        self._cells[cell] = self._cells.get(cell, 0) + 1
        self._sum += seconds
        if seconds > self.longest:
            self.longest = seconds

    def failed(self, kind: str) -> None:
        self.errors[kind] += 1

    @property
    def answers(self) -> int:
        return self.allowed + self.refused

    @property
    def mean(self) -> float:
        return self._sum / self.answers if self.answers else 0.0

    def percentile(self, per_cent: float) -> float:
        """The latency percentile, in seconds."""
        wanted = max(1.0, self.answers * per_cent / 100)
        seen = 0
        for cell in sorted(self._cells, key=top_of):
            seen += self._cells[cell]
            if seen >= wanted:
                return min(top_of(cell) / 1e6, self.longest)
        return 0.0


def cell_of(microseconds: int) -> int:
    if microseconds < _FINE:
        return max(0, microseconds)
    shift = microseconds.bit_length() - _BITS - 1
    return (shift << 16) | (microseconds >> shift)


def top_of(cell: int) -> int:
    """The upper bound of a bucket, in microseconds."""
    shift, mantissa = cell >> 16, cell & 0xFFFF
    return (mantissa + 1) << shift
