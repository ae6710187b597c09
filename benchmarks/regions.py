"""Three sites that share a limit, far from their home, cut off and healed: a table, a picture."""

from __future__ import annotations

import importlib
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import plots, redis_server
from benchmarks.report import OUT, Table

TESTS = Path(__file__).parents[1] / "tests"
COLORS = {"eu": plots.BLUE, "us": plots.ORANGE, "asia": plots.GREEN}


def run(quick: bool = False) -> list[Table]:
    sys.path.append(str(TESTS))  # the sites, their lines and the checks are those of the tests
    try:
        sites = importlib.import_module("stores.regions.sites")
    finally:
        sys.path.remove(str(TESTS))
    seconds = 20.0 if quick else 60.0
    with ExitStack() as stack:
        _, core = redis_server.cores()
        servers = [stack.enter_context(redis_server.running(core)) for _ in range(4)]
        home, *urls = [server.database() for server in servers]
        record = sites.run(home, urls, seconds, seed=3)
    table = Table(
        "Regions: one limit over three sites, 50 to 150 ms from their home, cut off at random",
        {"": "", "asked": ",.0f", "passed": ",.0f"},
    )
    for region in sites.REGIONS:
        table.add(region, len(record.seen[region]), len(record.admitted(region)))
    table.add("all", sum(map(len, record.seen.values())), len(record.admitted()))
    table.notes = [
        f"{sites.LIMIT}, floors of {sites.FLOOR:.0%}, leases of {sites.LEASE:g} s;"
        f" {len(record.cuts)} cuts in {seconds:g} s",
        f"the worst interval has {-record.overrun():.0f} less than burst + rate x time",
        f"not used while all was whole: {record.under_use():.1%} of the rate",
    ]
    _picture(sites, record, OUT / "regions.png")
    return [table]


def _picture(sites: Any, record: Any, path: Path) -> None:
    """Requests a second that pass at each site, and of all; cuts are shaded."""
    figure, (plot,) = plots.canvas(9, 4)
    bottom = [0.0] * int(record.seconds)
    ends = list(range(1, int(record.seconds) + 1))
    for region in sites.REGIONS:
        rates = [0.0] * len(ends)
        for each in record.admitted(region):
            if each.end < len(ends):
                rates[int(each.end)] += 1
        top = [low + rate for low, rate in zip(bottom, rates, strict=True)]
        middles = [end - 0.5 for end in ends]
        plot.fill_between(middles, bottom, top, step="mid", color=COLORS[region], alpha=0.75,
                          label=region, linewidth=0)  # fmt: skip
        bottom = top
    rate = 1e9 / sites.LIMIT.interval_ns
    plot.axhline(rate, color=plots.INK, linewidth=1)
    plot.text(record.seconds / 6, rate * 1.03, "the rate, after the burst", color=plots.INK)
    highest = max(bottom) * 1.18
    for region, start, end in record.cuts:
        plot.axvspan(start, end, color=plots.FAINT, alpha=0.25, linewidth=0)
        plot.text((start + end) / 2, highest * 0.94, f"{region}\ncut off", ha="center", va="center",
                  color=COLORS[region], fontsize=9)  # fmt: skip
    plot.set_xlim(0, record.seconds)
    plot.set_ylim(0, highest)
    plot.set_xlabel("seconds")
    plot.set_ylabel("requests a second that pass")
    plot.set_title("One limit over three sites: twice as much is asked for", pad=14)
    plot.legend(loc="lower right", ncols=3, frameon=True)
    plots.save(figure, path)
