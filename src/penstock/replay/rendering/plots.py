"""The plots of reports, as SVG by name: for the page, and for files of their own."""

from __future__ import annotations

from penstock.durations import format_period
from penstock.replay.recommending.recommendation import Recommendation
from penstock.replay.rendering.sections import number
from penstock.replay.rendering.svg import Plot, heat_map
from penstock.replay.report import Report, Timeline

SECOND = 1_000_000_000
SHOWN_RULES = 20


def advice_plots(advice: Recommendation) -> dict[str, str]:
    """limits, needs, frontier, timeline (in two parts) and week."""
    if advice.choice is None:
        return {}
    start, width, asked, refused = advice.timeline
    return {
        "limits": _limits(advice),
        "needs": _needs(advice),
        **({"frontier": _frontier(advice)} if advice.frontier else {}),
        **timeline_plots(Timeline(start, width, asked, refused), "all requests"),
        "week": heat_map(advice.week, "Requests by hour and weekday"),
    }


def report_plots(report: Report) -> dict[str, str]:
    """For each of the rules that refuse most, when requests came, and when it refused some."""
    out: dict[str, str] = {}
    for at, rule in enumerate(report.busiest()[:SHOWN_RULES], 1):
        for name, plot in timeline_plots(rule.timeline, rule.id).items():
            out[f"{at:02}-{name}"] = plot
    return out


def _limits(advice: Recommendation) -> str:
    chosen = advice.choice
    assert chosen is not None
    most = max((limit for limit, _, _ in advice.curve), default=1)
    window = next(
        (format_period(each.window) for each in advice.windows if each.choice is chosen), "window"
    )
    worst = max((part for _, part, _ in advice.curve), default=0) or 1e-6
    plot = Plot(
        (1, most), (0, 100 * worst), log_x=True, x_label=f"limit per {window}",
        y_label="% refused",
        title="Refused share and refused keys against the limit",
    )  # fmt: skip
    if chosen.plateau is not None:
        low, high = chosen.plateau
        plot.band(low, high - 1, "the same keys")
    plot.line([(limit, 100 * part) for limit, part, _ in advice.curve], "refused")
    touched = most_touched(advice)
    plot.line([(limit, 100 * worst * keys / touched) for limit, _, keys in advice.curve], "keys")
    plot.mark(chosen.limit, number(chosen.limit))
    return plot.text()


def most_touched(advice: Recommendation) -> int:
    """The keys at the top of the axis: those that a limit of one refuses."""
    return max((keys for _, _, keys in advice.curve), default=0) or 1


def _needs(advice: Recommendation) -> str:
    assert advice.choice is not None
    most = max((limit for limit, _, _ in advice.curve), default=1)
    most_keys = max((keys for _, keys, _ in advice.distribution), default=1)
    plot = Plot(
        (1, most), (0.8, most_keys), log_x=True, log_y=True, x_label="most that a key needed",
        y_label="keys", title="How many keys needed how much",
    )  # fmt: skip
    for need, keys, automated in advice.distribution:
        plot.bar(need, 4, 0.8, keys, "allowed")
        if automated:
            plot.bar(need, 4, 0.8, automated, "refused")
    plot.mark(advice.choice.limit, number(advice.choice.limit))
    return plot.text()


def _frontier(advice: Recommendation) -> str:
    rates = [rate for rate, *_ in advice.frontier]
    tallest = max(max(bursts) for _, *bursts in advice.frontier)
    plot = Plot(
        (min(rates), max(rates)), (1, tallest), log_x=True, log_y=True,
        x_label="requests a second", y_label="burst",
        title="Rate against burst: what refuses nothing",
    )  # fmt: skip
    for index, kind in ((1, "quiet"), (2, "allowed"), (3, "keys")):
        plot.line([(row[0], row[index]) for row in advice.frontier], kind)
    if advice.bucket is not None:
        plot.dot(*advice.bucket, advice.limit or "")
    return plot.text()


def timeline_plots(timeline: Timeline, title: str) -> dict[str, str]:
    """What was asked, and what was refused: on an axis of its own, so that 0.1 % can be seen."""
    if not timeline.asked:
        return {}
    width = timeline.width / SECOND
    start = timeline.start / SECOND
    end = start + width * len(timeline.asked)
    out = {}
    for name, counts, kind, height in (
        ("asked", timeline.asked, "allowed", 170),
        ("refused", timeline.refused, "refused", 120),
    ):
        if not any(counts):
            continue
        plot = Plot(
            (start, end), (0, max(counts) / width), title=f"{name} over time: {title}",
            y_label=f"{name} a second", time_x=True, height=height,
        )  # fmt: skip
        plot.area(
            [(start + width * (at + 0.5), count / width) for at, count in enumerate(counts)], kind
        )
        out[name] = plot.text()
    return out
