"""Size: how many may run at once, as a number or as somebody works it out.

A concurrency limiter enforces a size and never computes one. It reads ``limit`` before
each admission, and tells ``record`` how every run went that says something about load.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Size(Protocol):
    """How many may run at once, as somebody else works it out.

    Both are called under the limiter's lock: they must be quick, and must not call the
    limiter. A ``limit`` below 1 counts as 1, as otherwise no run would ever tell that it
    may grow.
    """

    @property
    def limit(self) -> int:
        """So many, now."""

    def record(self, duration_ns: int, running: int, dropped: bool, now: int) -> None:
        """One run ended.

        How long it took, how many ran when it began (itself included), and whether it was
        dropped: a ``TimeoutError`` in its body, or ``drop()`` of its hold.
        """


class Fixed:
    """A size that stays as it is."""

    __slots__ = ("limit",)

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def record(self, duration_ns: int, running: int, dropped: bool, now: int) -> None:
        """Nothing to be learnt."""


def as_size(limit: int | Size) -> Size:
    """``limit`` as a size; what is none is an error."""
    if isinstance(limit, int) and not isinstance(limit, bool):
        if limit < 1:
            raise ValueError(f"limit is how many may run at once, at least 1, not {limit!r}")
        return Fixed(limit)
    if not isinstance(limit, Size):
        raise TypeError(
            "limit is how many may run at once: a whole number such as 4, or a Size with limit"
            f" and record, not {limit!r}"
        )
    return limit
