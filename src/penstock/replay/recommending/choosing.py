"""Choosing a limit from the most that each key needed.

The widest *plateau* in these numbers is the natural limit: between what people need and what
programs take there is often a gap, and any limit in it refuses the same keys. Without one, it is a
quantile with headroom. No key that looks like people is put above the limit.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

# A gap counts as a plateau if its upper end is so many times its lower one.
LEAST_PLATEAU = 1.5
_STEPS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)


@dataclass(frozen=True, slots=True)
class Choice:
    """``limit``, how it was found (``"plateau"`` or ``"quantile"``), and in which words."""

    limit: int
    how: str
    why: str
    plateau: tuple[int, int] | None = None


def choose(
    needs: Sequence[int], people: int, quantile: float = 0.999, headroom: float = 1.5
) -> Choice:
    """``needs`` are sorted; ``people`` is the most that a key needs which is not automated."""
    plateau = widest_plateau(needs, people)
    if plateau is not None:
        low, high = plateau
        above = sum(1 for need in needs if need >= high)
        limit = nice_between(low, high)
        return Choice(
            limit,
            "plateau",
            f"any limit from {low:,} to {high - 1:,} refuses the same {above:,} key"
            + ("" if above == 1 else "s"),
            plateau,
        )
    need = needs[min(len(needs) - 1, math.ceil(quantile * len(needs)) - 1)]
    base = people or need
    limit = nice_up(base * headroom)
    why = f"{quantile:.1%} of the keys need at most {need:,}; with headroom x {headroom:g}"
    if people:
        why = f"the busiest key that is not automated needs {people:,}; headroom x {headroom:g}"
    return Choice(limit, "quantile", why)


def widest_plateau(needs: Sequence[int], people: int) -> tuple[int, int] | None:
    """The neighbours with the largest ratio, above all people and most keys."""
    # Where all that is above people looks automated, there may be more of it than one percent.
    below = bisect.bisect_right(needs, people)
    start = max(0, min(math.ceil(0.99 * len(needs)), below) - 1)
    best: tuple[float, int, int] | None = None
    for low, high in zip(needs[start:], needs[start + 1 :], strict=False):
        # Up to what people need, nobody may be refused.
        low = max(low, people)
        if low < 1 or high <= low:
            continue
        ratio = high / low
        if ratio >= LEAST_PLATEAU and (best is None or ratio > best[0]):
            best = ratio, low, high
    return None if best is None else (best[1], best[2])


def nice_up(value: float) -> int:
    """The next number that people write: 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, ..."""
    if value <= 10:
        return next(n for n in (1, 2, 3, 4, 5, 6, 8, 10) if n >= value)
    power: int = 10 ** math.floor(math.log10(value))
    for step in _STEPS:
        if step * power >= value - 1e-9:
            return round(step * power)
    return 10 * power


def nice_between(low: int, high: int) -> int:
    """A round number from ``low`` to below ``high``, near their geometric mean."""
    middle = math.sqrt(low * high)
    candidates = {nice_up(low), nice_up(middle), nice_up(middle / 1.3), nice_up(middle / 1.6)}
    fitting = [n for n in candidates if low <= n < high]
    if not fitting:
        return max(low, min(high - 1, round(middle)))
    return min(fitting, key=lambda n: abs(math.log(n / middle)))


def interval(needs: Sequence[int], quantile: float) -> tuple[int, int]:
    """Between which needs the true quantile lies, with about 95 % confidence."""
    n = len(needs)
    spread = 1.96 * math.sqrt(n * quantile * (1 - quantile))
    low = min(n - 1, max(0, math.floor(n * quantile - spread)))
    high = min(n - 1, math.ceil(n * quantile + spread))
    return needs[low], needs[high]
