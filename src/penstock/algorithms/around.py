"""An algorithm around another one: its own words come first, then the inner row."""

from __future__ import annotations

from penstock.algorithms.base import Algorithm
from penstock.algorithms.words import Words


class Around(Algorithm):
    """Leaves everything but the decision to the inner one, which begins at ``own``."""

    def __init__(self, inner: Algorithm, own: int) -> None:
        Algorithm.__init__(self, inner.limit)
        self.inner = inner
        self.own = own
        self.words = own + inner.words
        self.most_words = own + inner.most_words
        self.length_at = -1 if inner.length_at < 0 else own + inner.length_at
        self.most = inner.most
        self.wall = inner.wall
        self.valid_from = inner.valid_from
        self.valid_until = inner.valid_until

    def start(self, now: int) -> None:
        self.inner.start(now)

    def refresh(self, now: int) -> None:
        self.inner.refresh(now)
        self.valid_from = self.inner.valid_from
        self.valid_until = self.inner.valid_until

    def sound(self, state: Words) -> bool:
        return self.inner.sound(state + self.own)

    def extent(self, state: Words) -> int:
        return self.own + self.inner.extent(state + self.own)

    def carry(self, old: Words, new: Words) -> None:
        for index in range(self.own):
            new[index] = old[index]
        self.inner.carry(old + self.own, new + self.own)
