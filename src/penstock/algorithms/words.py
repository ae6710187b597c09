"""What algorithms have in common with their callers: constants, and rows of words.

Plain Python even where the core is compiled: the compiled modules copy these
values into C when they are imported.
"""

from __future__ import annotations

# What `Algorithm.decide` and `Algorithm.charge` answer.
REFUSED = 0
ALLOWED = 1
NO_ROOM = 2

# What `Algorithm.decide` is asked to do. An attempt takes like a hit, but is no violation
# when it is refused: it starts no lockout and counts nowhere.
LOOK = 0
HIT = 1
ATTEMPT = 2

# `Algorithm.refund` without knowing when the units were taken.
NO_MARK = -1

FOREVER = 2**63 - 1


class Words:
    """A row of integers that knows ``row + n``: the pointer of the uncompiled core."""

    __slots__ = ("at", "cells")

    def __init__(self, cells: list[int], at: int = 0) -> None:
        self.cells = cells
        self.at = at

    def __getitem__(self, index: int) -> int:
        return self.cells[self.at + index]

    def __setitem__(self, index: int, value: int) -> None:
        self.cells[self.at + index] = value

    def __add__(self, offset: int) -> Words:
        return Words(self.cells, self.at + offset)
