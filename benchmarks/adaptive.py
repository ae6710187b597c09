"""Adaptive limits on a service that loses half of its capacity and gets it back.

In virtual time: a few seconds for all of it, and the same on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.report import OUT, Table
from penstock.adaptive import AIMD, AdaptiveLimit, CPUTarget, Gradient2, Vegas
from penstock.testing.load_simulation import (
    Admission,
    Second,
    SimulatedService,
    Unlimited,
    simulate,
)

TARGET = 0.2
CHANGES = (0, 30, 60, 90)
RUN_TIME = 0.05
SERVERS = ((0, 20), (30, 10), (60, 20))
OFFERED = 600
SETTLED = 10

Make = Callable[[SimulatedService], AdaptiveLimit | Admission]
STRATEGIES: dict[str, Make] = {
    "AIMD, p99 below 200 ms": lambda _: AIMD(TARGET, chance=random.Random(1).random),
    "Gradient2": lambda _: Gradient2(),
    "Vegas": lambda _: Vegas(),
    "CPUTarget, 95 %": lambda service: CPUTarget(0.95, reader=service.cpu),
}
NO_LIMIT: Make = lambda _: Unlimited()  # noqa: E731  # one more of the kind above


def run(quick: bool = False, path: Path = OUT / "adaptive.png") -> list[Table]:
    """``quick`` changes nothing: this takes a moment."""
    table = Table(
        f"Adaptive: {OFFERED}/s offered; capacity 400/s, 200/s after 30 s, 400/s after 60 s",
        {"": "", "worst 5 s, % of capacity": ".0f", "worst p99 ms": ".0f", "shed %": ".0f"},
        notes=[f"from {SETTLED} s after each change; the target of AIMD is {TARGET * 1e3:.0f} ms"],
    )
    runs = {name: _simulated(make) for name, make in STRATEGIES.items()}
    without = _simulated(NO_LIMIT)
    for name, rows in (*runs.items(), ("no limit", without)):
        settled = [rows[start + SETTLED : end] for start, end in pairwise(CHANGES)]
        table.add(
            name,
            100 * min(_worst_share(part) for part in settled),
            1e3 * max(row.p99 for part in settled for row in part),
            100 * sum(row.shed for row in rows) / sum(row.offered for row in rows),
        )
    draw(runs, without, path)
    return [table]


def _simulated(make: Make) -> list[Second]:
    service = SimulatedService(servers=SERVERS, run_time=((0, RUN_TIME),))
    return simulate(make(service), service, ((0, OFFERED),), CHANGES[-1])


def _worst_share(part: list[Second]) -> float:
    fives = [part[start : start + 5] for start in range(len(part) - 4)]
    return min(
        sum(row.finished for row in five) / sum(row.capacity for row in five) for five in fives
    )


def draw(runs: dict[str, list[Second]], without: list[Second], path: Path) -> None:
    """A column for each strategy; limit, response time and throughput under one another."""
    figure, _ = plots.canvas(14, 7.6)
    figure.clear()
    axes = figure.subplots(3, len(runs), sharex=True, sharey="row")
    for column, (name, rows) in enumerate(runs.items()):
        _draw_limit(axes[0][column], rows, first=column == 0)
        _draw_latency(axes[1][column], rows, without, first=column == 0)
        _draw_throughput(axes[2][column], rows, first=column == 0)
        axes[0][column].set_title(name, fontweight="bold")
        axes[2][column].set_xlabel("seconds")
        for axis in axes[:, column]:
            axis.axvspan(30, 60, color="#f1e7c6", linewidth=0, zorder=0)
            axis.set_xlim(0, CHANGES[-1])
            axis.set_xticks(range(0, CHANGES[-1] + 1, 15))
            axis.grid(axis="y", color="#e4e4e4", linewidth=0.8)
            axis.set_axisbelow(True)
    figure.suptitle(
        "A service at 1.5 times its capacity loses half of its servers for 30 s (shaded):"
        " what each strategy makes of it",
        x=0.01, ha="left", fontsize=13,
    )  # fmt: skip
    plots.save(figure, path)


def _draw_limit(axis: Any, rows: list[Second], first: bool) -> None:
    # As many as can be served at once: a limit below it leaves servers idle.
    _reference(axis, [row.capacity * RUN_TIME for row in rows], "servers")
    axis.plot([row.at for row in rows], [row.limit for row in rows], color=plots.BLUE,
              linewidth=1.8, label="limit")  # fmt: skip
    axis.set_ylim(0, 90)
    if first:
        axis.set_ylabel("running at once")
        axis.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)


def _draw_latency(axis: Any, rows: list[Second], without: list[Second], first: bool) -> None:
    middles = [row.at + 0.5 for row in rows]
    axis.plot(middles, [1e3 * row.p50 for row in without], color=plots.FAINT, linewidth=1.4)
    axis.annotate("p50 without a limit", (88, 22_000), ha="right", va="top", fontsize=9,
                  color=plots.FAINT)  # fmt: skip
    for part, colour in (("p99", plots.ORANGE), ("p50", plots.GREEN)):
        values = [1e3 * getattr(row, part) for row in rows]
        axis.plot(middles, values, color=colour, linewidth=1.8, label=part)
    axis.axhline(1e3 * TARGET, color=plots.INK, linewidth=1.2, linestyle="--",
                 label=f"{1e3 * TARGET:.0f} ms")  # fmt: skip
    axis.set_yscale("log")
    axis.set_ylim(30, 100_000)
    axis.set_yticks([50, 200, 1_000, 10_000], ["50 ms", "200 ms", "1 s", "10 s"])
    axis.minorticks_off()
    if first:
        axis.set_ylabel("response time (log)")
        axis.legend(frameon=False, fontsize=9, loc="center", bbox_to_anchor=(0.6, 0.45), ncols=3)


def _draw_throughput(axis: Any, rows: list[Second], first: bool) -> None:
    _reference(axis, [row.capacity for row in rows], "true capacity")
    axis.plot([row.at + 0.5 for row in rows], [row.finished for row in rows], color=plots.BLUE,
              linewidth=1.8, label="finished")  # fmt: skip
    axis.set_ylim(0, 560)
    if first:
        axis.set_ylabel("requests a second")
        axis.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)


def _reference(axis: Any, values: list[float], label: str) -> None:
    axis.step(range(len(values)), values, where="post", color=plots.INK, linewidth=1.2,
              linestyle="--", label=label)  # fmt: skip
