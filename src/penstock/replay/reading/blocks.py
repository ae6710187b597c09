"""Block: some thousand requests as columns."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from penstock._mode import REPLAY_COMPILED

if REPLAY_COMPILED and not TYPE_CHECKING:
    from penstock.replay.reading._scanner import (
        Interner,
        Scanner,
        count_of,
        gather_numbers,
        gather_words,
        is_sorted,
        not_before,
        order_of,
        shift_back,
        spread,
        translate,
    )
else:
    from penstock.replay.reading._scanner_pure import (
        Interner,
        Scanner,
        count_of,
        gather_numbers,
        gather_words,
        is_sorted,
        not_before,
        order_of,
        shift_back,
        spread,
        translate,
    )

__all__ = [
    "BLOCK", "Block", "Interner", "Scanner", "count_of", "is_sorted", "not_before",
    "shift_back", "spread", "translate",
]  # fmt: skip

# Requests in a block: few enough for the cache, many enough to forget what a block costs.
BLOCK = 1 << 15
_ZEROS = bytes(8 * BLOCK)


class Block:
    """The first ``n`` entries of each column are requests.

    ``times``: nanoseconds since 1970. ``words``: numbers of texts, see `Interner`; 0 is nothing.
    ``numbers``: bytes, status, duration; -1 is nothing.
    """

    __slots__ = ("n", "numbers", "times", "words")

    def __init__(self, words: int, numbers: int, room: int = BLOCK) -> None:
        self.n = 0
        self.times = _zeros("q", room)
        self.words = [_zeros("i", room) for _ in range(words)]
        self.numbers = [_zeros("q", room) for _ in range(numbers)]

    def make_room(self, room: int) -> None:
        """Room for so many requests in all."""
        missing = room - len(self.times)
        if missing > 0:
            for column in (self.times, *self.words, *self.numbers):
                column.frombytes(bytes(missing * column.itemsize))

    def take(self, other: Block, start: int, end: int) -> None:
        """Hold these requests of another block, instead of its own."""
        self.n = end - start
        self.make_room(self.n)
        self.times[: self.n] = other.times[start:end]
        for mine, theirs in zip(self.words, other.words, strict=True):
            mine[: self.n] = theirs[start:end]
        for mine, theirs in zip(self.numbers, other.numbers, strict=True):
            mine[: self.n] = theirs[start:end]

    def in_order(self) -> Block:
        """By time; requests of one time stay in their order."""
        if is_sorted(self.times, self.n):
            return self
        n = self.n
        order, scratch = _zeros("q", n), _zeros("q", n)
        order_of(self.times, n, order, scratch)
        out = Block(len(self.words), len(self.numbers), n)
        out.n = n
        gather_numbers(self.times, order, out.times, n)
        for source, target in zip(self.words, out.words, strict=True):
            gather_words(source, order, target, n)
        for source, target in zip(self.numbers, out.numbers, strict=True):
            gather_numbers(source, order, target, n)
        return out


def _zeros(kind: str, room: int) -> array[int]:
    column: array[int] = array(kind)
    column.frombytes(
        _ZEROS[: room * column.itemsize] if room <= BLOCK else bytes(room * column.itemsize)
    )
    return column
