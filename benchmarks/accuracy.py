"""What is admitted, against the limit and against an exact log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks import plots, traffic
from benchmarks.contenders import (
    AIOLIMITER,
    LIMITS,
    MORE_PYRATE,
    MORE_THROTTLED,
    PENSTOCK,
    PYRATE,
    THROTTLED,
)
from benchmarks.replay import PATCHED, replay
from benchmarks.report import OUT, Table
from benchmarks.traffic import SECOND, above_envelope, exact_log, worst_window

AMOUNT, PER, PERIOD = 100, "minute", 60 * SECOND
TRAFFIC: dict[str, Callable[[int, int, int], list[int]]] = {
    "Poisson, 1.5 x the limit": traffic.poisson,
    "bursty, on for 1/6 of the time at 9 x the limit": traffic.bursty,
    "window edges, a full limit just before and just after": traffic.edges,
}
NOTES = [
    PATCHED,
    "error: admitted against the exact log; worst minute: the most in any minute, 1 is the limit",
    "above the envelope: units above burst + rate * t in the worst interval of any length",
    "a bucket promises burst + rate * t, which is up to twice the limit in the minute after a"
    " rest; burst is the limit here",
]


def run(quick: bool = False) -> list[Table]:
    hits = 3_000 if quick else 15_000
    pyrate, throttled = [*PYRATE, *MORE_PYRATE], [*THROTTLED, *MORE_THROTTLED]
    contenders = [*PENSTOCK, *LIMITS, *throttled, *pyrate, AIOLIMITER]
    tables = []
    for title, make in TRAFFIC.items():
        times = make(AMOUNT, PERIOD, hits)
        exact = exact_log(times, AMOUNT, PERIOD)
        table = Table(f"Accuracy: {AMOUNT}/{PER}, {title}", {
            "": "", "offered": ",", "admitted": ",", "error %": "+.2f", "worst minute": ".2f",
            "above envelope": ",.1f",
        })  # fmt: skip
        add(table, "exact log", times, exact, exact)
        for contender in contenders:
            add(table, contender.name, times, replay(contender, AMOUNT, PER, times), exact)
        tables.append(table)
    tables[-1].notes = NOTES
    plots.accuracy(tables, OUT / "accuracy.png")
    return tables


def add(
    table: Table, name: str, times: Sequence[int], admitted: Sequence[int], exact: Sequence[int]
) -> None:
    table.add(
        name,
        len(times),
        len(admitted),
        100 * (len(admitted) / len(exact) - 1),
        worst_window(admitted, PERIOD) / AMOUNT,
        above_envelope(admitted, AMOUNT, PERIOD),
    )
