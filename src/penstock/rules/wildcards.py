"""Values with ``*``: the first pattern of a list, in its order, that a value fits.

``*`` matches any characters, or none. A pattern is split at its stars into a prefix, a suffix and
middles, which must occur between them, from left to right. The leftmost place for each is always
right, so there is no backtracking, and the cost grows with the length of the value only. A regular
expression would backtrack: with ``*a*a*a*b``, four hundred times ``a`` keep `re` busy for a second.

Patterns are sorted by their prefix; those that begin with ``*`` by their reversed suffix. Only
those with a ``*`` at both ends are tried one by one::

    1  /api/             bisect finds the last prefix that is not above "/api/users/7":
    2  /api/orders/      row 3. All prefixes that this value has are that one, or are
    3  /api/users/       prefixes of it themselves: each row knows the next shorter one

To add a kind of pattern: `Step.is_wildcard` (model.py) says which values are patterns, `Pattern`
here which values fit (`takes` in deciding/overrides.py asks it for overrides), `_check_hidden`
(reading/levels.py) which rules another one hides, and reading/keywords.py has the help text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pattern(Generic[T]):
    """One pattern, split at its stars, and its target."""

    __slots__ = ("middles", "plain", "prefix", "rank", "suffix", "target")

    def __init__(self, text: str, rank: int, target: T) -> None:
        self.prefix, *middles, self.suffix = text.split("*")
        self.middles = tuple(filter(None, middles))
        self.rank = rank  # its place in the order of the file
        self.target = target
        # One piece of text only: a value that has it matches.
        self.plain = bool(self.prefix) + bool(self.suffix) + len(self.middles) <= 1

    def matches(self, value: str) -> bool:
        return value.startswith(self.prefix) and self.fits(value)

    def fits(self, value: str) -> bool:
        """Whether a value fits that begins with the prefix."""
        at, end = len(self.prefix), len(value) - len(self.suffix)
        if end < at or not value.endswith(self.suffix):
            return False
        for middle in self.middles:
            start = value.find(middle, at, end)
            if start < 0:
                return False
            at = start + len(middle)
        return True


class Wildcards(Generic[T]):
    """The patterns of one key on one level."""

    __slots__ = ("_by_prefix", "_by_suffix", "_others")

    def __init__(self, patterns: Iterable[tuple[str, T]]) -> None:
        prefixes: list[tuple[str, Pattern[T]]] = []
        suffixes: list[tuple[str, Pattern[T]]] = []
        others: list[tuple[str, Pattern[T]]] = []
        for rank, (text, target) in enumerate(patterns):
            pattern = Pattern(text, rank, target)
            if pattern.prefix:
                prefixes.append((pattern.prefix, pattern))
            elif pattern.suffix:
                suffixes.append((pattern.suffix[::-1], pattern))
            else:
                others.append((pattern.middles[0] if pattern.middles else "", pattern))
        self._by_prefix = _Sorted(prefixes) if prefixes else None
        self._by_suffix = _Sorted(suffixes) if suffixes else None
        self._others = tuple(others)

    def first(self, value: str) -> T | None:
        """The target of the first pattern that matches ``value``, or None."""
        best: Pattern[T] | None = None
        if self._by_prefix is not None:
            best = self._by_prefix.first(value, value, best)
        if self._by_suffix is not None:
            best = self._by_suffix.first(value[::-1], value, best)
        for text, pattern in self._others:
            if best is not None and best.rank < pattern.rank:
                break
            if text in value and (pattern.plain or pattern.fits(value)):
                return pattern.target
        return None if best is None else best.target


class _Sorted(Generic[T]):
    """Patterns by what they begin with, sorted. Row 0 stands for none of them."""

    __slots__ = ("_beginnings", "_rows")

    def __init__(self, patterns: Iterable[tuple[str, Pattern[T]]]) -> None:
        alike: dict[str, list[Pattern[T]]] = {}
        for beginning, pattern in patterns:
            alike.setdefault(beginning, []).append(pattern)
        self._beginnings = sorted(alike)
        # Each row: its beginning, its patterns in order, and the row of the longest
        # other beginning that this one begins with. That is the row before, or one that
        # the row before leads to.
        self._rows: list[tuple[str, tuple[Pattern[T], ...], int]] = [("", (), 0)]
        for row, beginning in enumerate(self._beginnings):
            while not beginning.startswith(self._rows[row][0]):
                row = self._rows[row][2]
            self._rows.append((beginning, tuple(alike[beginning]), row))

    def first(self, begins: str, value: str, best: Pattern[T] | None) -> Pattern[T] | None:
        """Of ``best`` and the patterns that fit, the first; ``begins`` is looked up."""
        row = bisect_right(self._beginnings, begins)
        while row:
            beginning, patterns, row = self._rows[row]
            if begins.startswith(beginning):
                for pattern in patterns:
                    if best is not None and best.rank < pattern.rank:
                        break
                    if pattern.plain or pattern.fits(value):
                        best = pattern
                        break
        return best
