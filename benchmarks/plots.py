"""The pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Table

INK, FAINT = "#222222", "#8a8a8a"
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
OF_LIBRARY = {
    "floor": "#b8b8b8",
    "Penstock": BLUE,
    "limits": "#e69f00",
    "throttled-py": "#cc79a7",
    "pyrate-limiter": GREEN,
    "aiolimiter": "#7a6a53",
}


def canvas(width: float, height: float, columns: int = 1) -> tuple[Any, list[Any]]:
    """A figure that needs no screen, with as many plots side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({
        "font.size": 10, "text.color": INK, "axes.labelcolor": INK, "axes.titlesize": 11,
        "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": FAINT,
        "xtick.color": INK, "ytick.color": INK, "axes.titlelocation": "left",
    })  # fmt: skip
    figure, axes = pyplot.subplots(
        1, columns, figsize=(width, height), sharey=True, squeeze=False, layout="constrained"
    )
    return figure, list(axes[0])


def save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=144)
    pyplot.close(figure)


def speed(found: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Nanoseconds a call: bars on a logarithmic scale, one plot a scenario."""
    titles = {
        "hot": "one hot key, all allowed",
        "refused": "one hot key, mostly refused",
        "many": "a million keys (slow ones: 100 000)",
    }
    names = list(found["hot"])
    figure, axes = canvas(14, 0.34 * len(names) + 1.4, len(titles))
    for axis, (scenario, title) in zip(axes, titles.items(), strict=True):
        for row, name in enumerate(names):
            took = found[scenario].get(name)
            if took is None:
                continue
            colour = OF_LIBRARY[name.partition(":")[0]]
            axis.barh(row, took, height=0.72, color=colour)
            axis.annotate(
                f"{took:,.0f}", (took, row), xytext=(4, 0), textcoords="offset points",
                va="center", fontsize=9,
            )  # fmt: skip
        axis.set_xscale("log")
        axis.set_xlim(5, 80_000)
        axis.set_xticks([10, 100, 1_000, 10_000], ["10", "100", "1 000", "10 000"])
        axis.minorticks_off()
        axis.set_title(title)
        axis.set_xlabel("nanoseconds a call (logarithmic)")
        axis.grid(axis="x", color="#e4e4e4", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.4, -0.6)
    figure.suptitle("What one decision costs", x=0.01, ha="left", fontsize=13)
    save(figure, path)


def accuracy(tables: Sequence[Table], path: Path) -> None:
    """The worst minute and the error against the exact log, a dot for each traffic."""
    titles = {"worst minute": "most admitted in any minute / limit",
              "error %": "admitted, against an exact log, %"}  # fmt: skip
    kinds = ["Poisson", "bursty", "window edges"]
    marks = [("o", BLUE), ("D", ORANGE), ("s", GREEN)]
    names = [str(row[0]) for row in tables[0].rows]
    figure, axes = canvas(11, 0.32 * len(names) + 1.6, 2)
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        at = list(tables[0].columns).index(column)
        for table, kind, (mark, colour), shift in zip(
            tables, kinds, marks, (-0.2, 0.0, 0.2), strict=True
        ):
            values = [row[at] for row in table.rows]
            rows = [row + shift for row in range(len(names))]
            axis.plot(values, rows, mark, color=colour, markersize=5.5, label=kind)
        axis.set_title(title)
        for row in range(0, len(names), 2):
            axis.axhspan(row - 0.5, row + 0.5, color="#f3f3f3", linewidth=0)
        axis.grid(axis="x", color="#dcdcdc", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.tick_params(axis="y", length=0)
    axes[0].axvline(1, color=INK, linewidth=1)
    axes[1].axvline(0, color=INK, linewidth=1)
    axes[1].set_xscale("symlog", linthresh=5)
    axes[1].set_xticks([-30, -5, 0, 5, 30, 100], ["-30", "-5", "0", "+5", "+30", "+100"])
    axes[1].set_xlim(-50, 160)
    axes[1].minorticks_off()
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3, frameon=False
    )
    figure.suptitle("What is admitted at 100 a minute", x=0.01, ha="left", fontsize=13)
    save(figure, path)


def cells(found: Mapping[str, Mapping[int, Sequence[float]]], counts: Sequence[int],
          path: Path) -> None:  # fmt: skip
    """The worst minute by number of cells, a line for each limit, a plot for each traffic."""
    figure, axes = canvas(9, 3.8, len(found))
    for axis, (title, of_amount) in zip(axes, found.items(), strict=True):
        for (amount, worst), colour in zip(of_amount.items(), (ORANGE, GREEN, BLUE), strict=True):
            axis.plot(counts, worst, "o-", color=colour, markersize=4, label=f"{amount} a minute")
        axis.axhline(1, color=INK, linewidth=1)
        axis.set_xscale("log")
        axis.set_xticks(counts, [str(count) for count in counts], fontsize=8)
        axis.minorticks_off()
        axis.set_xlabel("cells")
        axis.set_title(title)
        axis.grid(color="#e4e4e4", linewidth=0.8)
    axes[0].set_ylabel("most in any minute / limit")
    axes[-1].legend(frameon=False)
    save(figure, path)


def edge(
    seconds: Sequence[float], lines: Mapping[str, Sequence[int]], limit: int, path: Path
) -> None:
    """Requests admitted in the last minute, over time."""
    figure, (axis,) = canvas(8.4, 4.2)
    axis.axvspan(-1, 1, color="#f1e7c6", linewidth=0)
    axis.axvline(0, color=FAINT, linewidth=1, linestyle=":")
    axis.axhline(limit, color=INK, linewidth=1.2, linestyle="--")
    for (name, counts), colour in zip(lines.items(), (ORANGE, BLUE), strict=True):
        axis.plot(seconds, counts, color=colour, linewidth=2.6)
        says = name.replace("_", " ")
        axis.annotate(
            f"{says}: {max(counts)} in one minute", (30, max(counts)), xytext=(0, 7),
            textcoords="offset points", ha="center", color=colour, fontweight="bold",
        )  # fmt: skip
    axis.annotate(
        f"the limit: {limit} a minute", (30, limit), xytext=(0, -16),
        textcoords="offset points", ha="center",
    )  # fmt: skip
    axis.annotate(
        f"{limit} requests just before\nthe window's edge,\n{limit} just after it",
        (-1.6, limit * 1.5), ha="right", va="center", fontsize=9,
    )  # fmt: skip
    axis.set_xlim(seconds[0], seconds[-1])
    axis.set_ylim(0, 2.3 * limit)
    axis.set_xlabel("seconds from the edge of the window")
    axis.set_ylabel("admitted in the last 60 seconds")
    save(figure, path)
