"""The numbers behind the plots of a recommendation."""

from __future__ import annotations

from array import array

from penstock.replay.recommending import arrivals
from penstock.replay.recommending.needs import LOOKED_AT, Behaviour, in_order, per_key, quantile_of
from penstock.replay.recommending.recommendation import SECOND, Recommendation, WindowChoice
from penstock.replay.recommending.sampling import Arrivals, first_from

_CANDIDATES = 48


def fill_plots(
    out: Recommendation,
    whole: tuple[array[int], array[int]],
    collected: Arrivals,
    chosen: WindowChoice,
    needs: array[int],
    behaviour: Behaviour,
    bucket: tuple[int, int],
) -> None:
    """The numbers behind the plots of the report."""
    starts, times = whole
    total = max(1, starts[len(starts) - 1])
    most = max(needs)
    refused: array[int] = array("q", bytes(8 * (len(starts) - 1)))
    admitted: array[int] = array("q", bytes(8 * len(times)))
    limits = sorted(
        {max(1, round(most ** (at / (_CANDIDATES - 1)))) for at in range(_CANDIDATES)}
        | {chosen.choice.limit}
    )
    for limit in limits:
        arrivals.refused_by_log(starts, times, chosen.window, limit, admitted, refused)
        touched = len(refused) - refused.tolist().count(0)
        out.curve.append((limit, sum(refused) / total, touched))
    for limit in limits[:: max(1, len(limits) // 16)]:
        interval_ns = max(1, chosen.window // limit)
        bursts = per_key(arrivals.bursts_at, whole, interval_ns)
        ordered = in_order(bursts)
        out.frontier.append(
            (
                limit * SECOND / chosen.window,
                quantile_of(ordered, 0.5),
                quantile_of(ordered, 0.99),
                behaviour.people(bursts),
            )
        )
    counts: dict[int, list[int]] = {}
    for row, need in enumerate(needs):
        if need:
            cell = counts.setdefault(need, [0, 0])
            cell[0] += 1
            if need > chosen.choice.limit // 2 and cell[0] <= LOOKED_AT:
                cell[1] += behaviour.is_automated(row)
    out.distribution = [(need, *counts[need]) for need in sorted(counts)]  # type: ignore[misc]
    out.week = [0] * 168
    week: array[int] = array("q", bytes(8 * 168))
    arrivals.count_hours(collected.times, len(collected.times), week)
    out.week = list(week)
    refused_at: array[int] = array("q", bytes(8 * len(times)))
    count = arrivals.refused_times(starts, times, *bucket, refused_at)
    width = max(SECOND, -(-(out.last - out.first) // 240))
    cells = (out.last - out.first) // width + 1
    asked, over = [0] * cells, [0] * cells
    for at in range(cells):
        low = first_from(collected.times, out.first + at * width)
        asked[at] = first_from(collected.times, out.first + (at + 1) * width) - low
    for at in range(count):
        over[(refused_at[at] - out.first) // width] += 1
    out.timeline = (out.first, width, asked, over)
