"""What is done with whole columns, uncompiled: as in `_scanner.pyx`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

SECOND = 1_000_000_000


def is_sorted(times: Sequence[int], n: int) -> bool:
    return all(times[at - 1] <= times[at] for at in range(1, n))


def order_of(times: Sequence[int], n: int, order: array[int], scratch: array[int]) -> None:
    for at, index in enumerate(sorted(range(n), key=times.__getitem__)):
        order[at] = index


def gather_words(source: array[int], order: array[int], out: array[int], n: int) -> None:
    for at in range(n):
        out[at] = source[order[at]]


gather_numbers = gather_words


def spread(times: array[int], n: int) -> None:
    """Spread the requests of each whole second evenly over it."""
    at = 0
    while at < n:
        end = at
        while end < n and times[end] == times[at]:
            end += 1
        for k in range(end - at - 1, 0, -1):
            times[at + k] += k * SECOND // (end - at)
        at = end


def not_before(times: array[int], n: int, earliest: int) -> int:
    """Move times before ``earliest`` there; how many there were."""
    for at in range(n):
        if times[at] >= earliest:
            return at
        times[at] = earliest
    return n


def shift_back(times: array[int], durations: Sequence[int], start: int, n: int) -> None:
    """From the end of each request to its start."""
    for at in range(start, n):
        if durations[at] > 0:
            times[at] = max(0, times[at] - durations[at])


def count_of(column: array[int], n: int, value: int) -> int:
    """How many of the first n are this value."""
    return column[:n].count(value)


def translate(
    source: array[int], start: int, n: int, table: array[int], out: array[int], at: int
) -> None:
    """n numbers by a table, into another column."""
    for i in range(n):
        out[at + i] = table[source[start + i]]
