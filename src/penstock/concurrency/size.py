"""Size: how many may run at once, as a fixed number or as an adaptive one.

A concurrency limiter enforces a size and never computes one. It reads ``limit`` before
each admission, and calls ``record`` for every run that says something about load.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Size(Protocol):
    """How many may run at once, as an object that computes it.

    Both are called under the limiter's lock: they must be quick, and must not call the
    limiter. A ``limit`` below 1 counts as 1: without any run the size could never grow
    again.
    """

    @property
    def limit(self) -> int:
        """The current size."""

    def record(self, duration_ns: int, running: int, dropped: bool, now: int) -> None:
        """Record a run that ended.

        Its duration, how many ran when it began (itself included), and whether it was
        dropped: by a ``TimeoutError`` in its body, or by ``drop()`` of its hold.
        """


class Fixed:
    """A size that does not change."""

    __slots__ = ("limit",)

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def record(self, duration_ns: int, running: int, dropped: bool, now: int) -> None:
        """There is nothing to learn."""


def as_size(limit: int | Size) -> Size:
    """``limit`` as a `Size`; raises if it is neither a number nor a size."""
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
