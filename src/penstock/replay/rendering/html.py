"""One self-contained HTML file: no script, no network, light and dark, and it prints well.

The first line is the answer. Then come the reasons, who is meant, when, what the log cannot tell,
the rules to copy, and how all of it was computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from penstock.durations import format_period
from penstock.replay.behaviour import describe
from penstock.replay.deciding.tallies import KeyTally
from penstock.replay.recommending.recommendation import Recommendation
from penstock.replay.rendering import advice as advice_text
from penstock.replay.rendering import sections
from penstock.replay.rendering.page import page, standalone, table, text
from penstock.replay.rendering.plots import (
    SHOWN_RULES,
    advice_plots,
    most_touched,
    report_plots,
    timeline_plots,
)
from penstock.replay.rendering.sections import number, share
from penstock.replay.report import Report, RuleReport, shown_time

_SHOWN_KEYS = 12


def write_report(report: Report, path: Path) -> None:
    """What `simulate` found, as one file."""
    path.write_text(report_page(report), encoding="utf-8", errors="replace")


def write_advice(advice: Recommendation, path: Path) -> None:
    """What `recommend` found, as one file."""
    path.write_text(advice_page(advice), encoding="utf-8", errors="replace")


def write_plots(found: Report | Recommendation, folder: Path) -> None:
    """Each plot as a file of its own."""
    plots = report_plots(found) if isinstance(found, Report) else advice_plots(found)
    folder.mkdir(parents=True, exist_ok=True)
    for name, svg in plots.items():
        folder.joinpath(f"{name}.svg").write_text(
            standalone(svg), encoding="utf-8", errors="replace"
        )


def report_page(report: Report) -> str:
    body = [f"<h1>{text(sections.headline(report))}</h1>"]
    if report.requests:
        body.append(
            f'<p class="quiet">{shown_time(report.first)} to {shown_time(report.last)} UTC,'
            f" {number(report.requests)} requests; {number(report.unmatched)} met no rule</p>"
        )
    body.append("<h2>Rules</h2>")
    body.append(
        table(
            ["rule", "limit", ">asked", ">refused", ">share", ">keys refused"],
            [
                [
                    rule.id + (" (shadow)" if rule.shadow else ""), "; ".join(rule.limits),
                    number(rule.asked), number(rule.refused), share(rule.refused_share),
                    f"{number(rule.keys_refused)} of {number(rule.keys)}",
                ]
                for rule in report.rules
            ],
        )
    )  # fmt: skip
    if report.change is not None:
        change = report.change
        body.append("<h2>Against the older rules</h2>")
        body.append(
            f"<p>{number(change.newly_refused)} requests newly refused,"
            f" {number(change.newly_allowed)} newly allowed, from"
            f" {number(change.clients_affected)} clients.</p>"
        )
        if change.clients:
            body.append(
                table(
                    ["client", ">newly refused", ">newly allowed"],
                    [[client, number(more), number(less)] for client, more, less in change.clients],
                )
            )
    busy = report.busiest()
    for rule in busy[:SHOWN_RULES]:
        body += _rule(rule)
    if len(busy) > SHOWN_RULES:
        body.append(f'<p class="quiet">{len(busy) - SHOWN_RULES} more rules are not drawn.</p>')
    if report.algorithms:
        body.append("<h2>The same numbers with each algorithm</h2>")
        body.append(
            table(
                ["algorithm", ">refused", ">keys refused"],
                [
                    [row.algorithm, number(row.refused), number(row.keys_refused)]
                    for row in report.algorithms
                ],
            )
        )
    body += _limits_of_the_log(report.warnings)
    computed = (
        "Every request was decided by the rules themselves, at the time that the log says, all"
        " limits of a request together or not at all. Nothing was sampled."
    )
    body += _how(computed, report.notes)
    return page("Penstock: what these rules would have done", body)


def _rule(rule: RuleReport) -> list[str]:
    shadow = " (in shadow: it refuses nothing)" if rule.shadow else ""
    body = [f"<h2>{text(rule.id)}{shadow}</h2>"]
    body += [_figure(plot) for plot in timeline_plots(rule.timeline, rule.id).values()]
    if not rule.top:
        return [*body, '<p class="quiet">It refused nothing.</p>']
    return [
        *body,
        table(
            ["key", ">asked", ">refused", "how it behaves"],
            [[key.key, number(key.asked), number(key.refused), describe(key)] for key in rule.top],
        ),
    ]


def advice_page(advice: Recommendation) -> str:
    body = [f"<h1>{text(advice_text.headline(advice))}</h1>"]
    plots = advice_plots(advice)
    if advice.choice is not None:
        body.append(f"<p>{text(advice.choice.why[:1].upper() + advice.choice.why[1:])}.</p>")
        body += [f'<p class="quiet">{text(line, 400)}</p>' for line in advice_text.basis(advice)]
        body += _limits(advice, plots)
        body += _whom(advice)
        body.append("<h2>When</h2>")
        body += [_figure(plots[name]) for name in ("asked", "refused") if name in plots]
    if advice.heaviest:
        body.append("<h2>The heaviest keys, and why we think so</h2>")
        body.append(
            table(
                [_key_title(advice), ">requests", "how it behaves"],
                [
                    [_name(advice, key), number(key.asked), describe(key)]
                    for key in advice.heaviest[:_SHOWN_KEYS]
                ],
            )
        )
    body += _limits_of_the_log(advice.warnings)
    if advice.yaml:
        body.append(f"<h2>Rules to begin with</h2><pre>{text(advice.yaml, 10_000)}</pre>")
    body += _more(advice, plots)
    computed = (
        "For each key, the most requests in any window and the smallest burst that refuses none"
        " are exact. The limit is the widest gap between these numbers, above all keys that do"
        " not look automated; without a gap, what those need, with headroom."
    )
    body += _how(computed, advice.notes)
    return page("Penstock: a recommended limit", body)


def _limits(advice: Recommendation, plots: Mapping[str, str]) -> list[str]:
    legend = (
        '<span class="r"><i></i>requests refused (%)</span><span class="k"><i></i>keys refused'
        f" (at the top: {number(most_touched(advice))})</span>"
    )
    return ["<h2>What other limits would have refused</h2>", _figure(plots["limits"], legend)]


def _whom(advice: Recommendation) -> list[str]:
    body = ["<h2>Whom it would have refused</h2>"]
    if not advice.refused_keys:
        return [*body, '<p class="quiet">Nobody in this log.</p>']
    body.append(
        table(
            [_key_title(advice), ">requests", ">refused", "how it behaves"],
            [
                [_name(advice, key), number(key.asked), number(key.refused), describe(key)]
                for key in advice.refused_keys[:_SHOWN_KEYS]
            ],
        )
    )
    assert advice.whole is not None
    more = advice.whole.keys_refused - len(advice.refused_keys[:_SHOWN_KEYS])
    return [*body, f'<p class="quiet">and {number(more)} more</p>'] if more > 0 else body


def _more(advice: Recommendation, plots: Mapping[str, str]) -> list[str]:
    """The other plots of facts: what keys need, rate against burst, and the week."""
    if not plots:
        return []
    legend = (
        '<span class="a"><i></i>keys</span><span class="r"><i></i>of these, keys that look'
        " automated</span>"
    )
    body = ["<h2>What keys need</h2>", _figure(plots["needs"], legend)]
    body.append(
        table(
            [
                "window", ">median", ">99 %", ">99.9 %", ">99.9 %, 95 % sure", ">most", ">limit",
                "why",
            ],
            [
                [
                    format_period(each.window),
                    *(number(each.quantiles[name]) for name in ("p50", "p99", "p99.9")),
                    advice_text.likely(each), number(each.quantiles["p100"]),
                    number(each.choice.limit), each.choice.why,
                ]
                for each in advice.windows
            ],
        )
    )  # fmt: skip
    if "frontier" in plots:
        legend = (
            '<span class="q"><i></i>half of the keys</span><span class="a"><i></i>99 % of the keys'
            '</span><span class="k"><i></i>all that do not look automated</span>'
        )
        body += ["<h2>Rate against burst</h2>", _figure(plots["frontier"], legend)]
    return [*body, "<h2>Hour by weekday (UTC)</h2>", _figure(plots["week"])]


def _key_title(advice: Recommendation) -> str:
    return advice.by[0] if len(advice.by) == 1 else "key"


def _name(advice: Recommendation, key: KeyTally) -> str:
    """The column's title says what it is."""
    return key.key.removeprefix(f"{advice.by[0]}=") if len(advice.by) == 1 else key.key


def _figure(svg: str, legend: str = "") -> str:
    caption = f"<figcaption>{legend}</figcaption>" if legend else ""
    return f"<figure>{svg}{caption}</figure>"


def _limits_of_the_log(warnings: Sequence[str]) -> list[str]:
    if not warnings:
        return []
    items = "".join(f"<li>{text(each, 400)}</li>" for each in warnings)
    return ["<h2>What this log cannot tell</h2>", f"<ul>{items}</ul>"]


def _how(computed: str, notes: Sequence[str]) -> list[str]:
    lines = "".join(f"<p class=quiet>{text(note, 400)}</p>" for note in notes)
    return ["<h2>How it was computed</h2>", f'<p class="quiet">{escape(computed)}</p>', lines]
