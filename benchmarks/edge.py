"""The burst that a fixed window lets through at its edge, and a sliding window does not."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from benchmarks import plots
from benchmarks.contenders import PENSTOCK
from benchmarks.replay import replay
from benchmarks.report import OUT, Table
from benchmarks.traffic import SECOND, START, worst_window

AMOUNT, PER, PERIOD = 100, "minute", 60 * SECOND
EDGE = START + PERIOD
STEP = SECOND // 20
FROM, TO = EDGE - 25 * SECOND, EDGE + 70 * SECOND


def run(quick: bool = False, path: Path = OUT / "edge_burst.png") -> list[Table]:
    """``quick`` changes nothing: this takes a moment."""
    table = Table(
        f"Edge: {AMOUNT}/{PER}, {AMOUNT} hits in the second before a window's edge and after it",
        {"": "", "offered": ",", "admitted": ",", "most in a minute": ","},
    )
    each = SECOND // AMOUNT
    times = list(range(EDGE - AMOUNT * each, EDGE + AMOUNT * each, each))
    moments = list(range(FROM, TO, STEP))
    seconds = [(moment - EDGE) / SECOND for moment in moments]
    lines: dict[str, list[int]] = {}
    for contender in PENSTOCK:
        if contender.algorithm in ("fixed_window", "sliding_window"):
            admitted = replay(contender, AMOUNT, PER, times)
            table.add(contender.name, len(times), len(admitted), worst_window(admitted, PERIOD))
            lines[contender.algorithm] = [in_last_period(admitted, moment) for moment in moments]
    plots.edge(seconds, lines, AMOUNT, path)
    return [table]


def in_last_period(admitted: list[int], now: int) -> int:
    return bisect_right(admitted, now) - bisect_right(admitted, now - PERIOD)
