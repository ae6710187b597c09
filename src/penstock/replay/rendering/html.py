"""One self-contained HTML file: no script, no network, light and dark, and it prints well."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from penstock.replay.behaviour import describe
from penstock.replay.recommending.recommendation import Recommendation
from penstock.replay.rendering import advice as advice_text
from penstock.replay.rendering import sections
from penstock.replay.rendering.sections import number, safe, share
from penstock.replay.rendering.svg import Plot, heat_map
from penstock.replay.report import Report, RuleReport, Timeline, shown_time

SECOND = 1_000_000_000
_SHOWN_RULES = 20
_STYLE = """
:root{color-scheme:light dark;--ink:light-dark(#18181b,#f4f4f5);--paper:light-dark(#fff,#131316);
--quiet:light-dark(#5b5b66,#a3a3ad);--line:light-dark(#e4e4e7,#2e2e34);
--allowed:light-dark(#0f766e,#2dd4bf);--refused:light-dark(#c2410c,#fb923c);
--shadow:light-dark(#6d28d9,#a78bfa);--soft:light-dark(#f4f4f5,#1d1d21)}
*{box-sizing:border-box}
body{margin:0 auto;max-width:892px;padding:28px 16px 60px;background:var(--paper);color:var(--ink);
font:14px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums}
h1{font-size:20px;line-height:1.4;margin:0 0 4px}h2{font-size:15px;margin:34px 0 6px}
p{margin:4px 0}.quiet{color:var(--quiet)}
table{border-collapse:collapse;width:100%;font-size:13px}
th{text-align:left;font-weight:400;color:var(--quiet);border-bottom:1px solid var(--line)}
th,td{padding:4px 10px 4px 0;vertical-align:top}td.n,th.n{text-align:right;white-space:nowrap}
tr+tr td{border-top:1px solid var(--line)}
code,pre,td.key{font-family:ui-monospace,monospace;font-size:12.5px;overflow-wrap:anywhere}
pre{background:var(--soft);border-radius:6px;padding:12px 14px;overflow:auto}
svg{width:100%;height:auto;display:block}svg text{font-size:11px;fill:var(--quiet)}
.axis{stroke:var(--quiet)}.grid{stroke:var(--line)}.line{fill:none;stroke-width:1.8}
.line.allowed{stroke:var(--allowed)}.line.refused{stroke:var(--refused)}
.line.keys{stroke:var(--shadow);stroke-dasharray:6 4}.line.quiet{stroke:var(--quiet);
stroke-dasharray:2 3}.area.allowed{fill:var(--allowed);fill-opacity:.28}
.area.refused{fill:var(--refused);fill-opacity:.75}.bar.allowed{fill:var(--allowed)}
.bar.refused{fill:var(--refused)}.heat{fill:var(--allowed);stroke:var(--line)}
.band{fill:var(--allowed);fill-opacity:.12}line.chosen{stroke:var(--ink);stroke-width:1.5}
circle.chosen{fill:var(--ink)}svg text.chosen{fill:var(--ink);font-weight:600;font-size:12px}
.legend span{margin-right:16px}.legend i{display:inline-block;width:18px;height:0;margin-right:5px;
vertical-align:middle;border-top:3px solid}.a i{border-color:var(--allowed)}
.r i{border-color:var(--refused)}.k i{border-color:var(--shadow);border-top-style:dashed}
.q i{border-color:var(--quiet);border-top-style:dotted}
@media print{body{max-width:none;padding:0}h2{break-after:avoid}svg,table,pre{break-inside:avoid}}
"""


def write_report(report: Report, path: Path) -> None:
    """What `simulate` found, as one file."""
    path.write_text(report_page(report), encoding="utf-8", errors="replace")


def write_advice(advice: Recommendation, path: Path) -> None:
    """What `recommend` found, as one file."""
    path.write_text(advice_page(advice), encoding="utf-8", errors="replace")


def report_page(report: Report) -> str:
    body = [f"<h1>{_text(sections.headline(report))}</h1>"]
    if report.requests:
        body.append(
            f'<p class="quiet">{shown_time(report.first)} to {shown_time(report.last)} UTC,'
            f" {number(report.requests)} requests; {number(report.unmatched)} met no rule</p>"
        )
    body.append("<h2>Rules</h2>")
    body.append(
        _table(
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
    busy = sorted((rule for rule in report.rules if rule.asked), key=lambda each: -each.refused)
    for rule in busy[:_SHOWN_RULES]:
        body += _rule(rule)
    if len(busy) > _SHOWN_RULES:
        body.append(f'<p class="quiet">{len(busy) - _SHOWN_RULES} more rules are not drawn.</p>')
    if report.change is not None:
        change = report.change
        body.append("<h2>Against the older rules</h2>")
        body.append(
            f"<p>{number(change.newly_refused)} requests newly refused,"
            f" {number(change.newly_allowed)} newly allowed, from"
            f" {number(change.clients_affected)} clients.</p>"
        )
        body.append(
            _table(
                ["client", ">newly refused", ">newly allowed"],
                [[client, number(more), number(less)] for client, more, less in change.clients],
            )
        )
    if report.algorithms:
        body.append("<h2>The same numbers with each algorithm</h2>")
        body.append(
            _table(
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
    return _page("Penstock: what these rules would have done", body)


def _rule(rule: RuleReport) -> list[str]:
    body = [f"<h2>{_text(rule.id)}</h2>", _timeline(rule.timeline, rule.id)]
    if rule.top:
        body.append(
            _table(
                ["key", ">asked", ">refused", "how it behaves"],
                [
                    [key.key, number(key.asked), number(key.refused), describe(key)]
                    for key in rule.top
                ],
            )
        )
    else:
        body.append('<p class="quiet">It refused nothing.</p>')
    return body


def advice_page(advice: Recommendation) -> str:
    body = [f"<h1>{_text(advice_text.headline(advice))}</h1>"]
    if advice.choice is not None and advice.holdout is not None:
        body.append(f"<p>{_text(advice.choice.why[:1].upper() + advice.choice.why[1:])}.</p>")
        body.append(
            '<p class="quiet">Chosen from the first 70 % of the time; in the last 30 % it'
            f" {_text(advice_text.consequence(advice.holdout))}.</p>"
        )
        body += _choice_plots(advice)
    body.append("<h2>The heaviest keys, and why we think so</h2>")
    body.append(
        _table(
            ["key", ">requests", "how it behaves"],
            [[key.key, number(key.asked), describe(key)] for key in advice.heaviest],
        )
    )
    if advice.limit is not None:
        start, width, asked, over = advice.timeline
        body.append("<h2>When</h2>")
        body.append(_timeline(Timeline(start, width, asked, over), "all requests"))
        body.append("<h2>Hour by weekday (UTC)</h2>")
        body.append(heat_map(advice.week, "Requests by hour and weekday"))
    body += _limits_of_the_log(advice.warnings)
    if advice.yaml:
        body.append(f"<h2>Rules to begin with</h2><pre>{_text(advice.yaml, 10_000)}</pre>")
    computed = (
        "For each key, the most requests in any window and the smallest burst that refuses none"
        " are exact. The limit is the widest gap between these numbers, above all keys that do"
        " not look automated; without a gap, what those need, with headroom."
    )
    body += _how(computed, advice.notes)
    return _page("Penstock: a recommended limit", body)


def _choice_plots(advice: Recommendation) -> list[str]:
    chosen = advice.choice
    assert chosen is not None
    most = max((limit for limit, _, _ in advice.curve), default=1)
    worst = max((part for _, part, _ in advice.curve), default=0) or 1e-6
    plot = Plot(
        (1, most), (0, 100 * worst), log_x=True, x_label="limit", y_label="% refused",
        title="Refused share and refused keys against the limit",
    )  # fmt: skip
    if chosen.plateau is not None:
        plot.band(*chosen.plateau, "the same keys")
    plot.line([(limit, 100 * part) for limit, part, _ in advice.curve], "refused")
    touched = max((keys for _, _, keys in advice.curve), default=0) or 1
    plot.line([(limit, 100 * worst * keys / touched) for limit, _, keys in advice.curve], "keys")
    plot.mark(chosen.limit, f"{chosen.limit:,}")
    body = ["<h2>What other limits would have refused</h2>", plot.text()]
    body.append(
        '<p class="legend quiet"><span class="r"><i></i>requests refused (%)</span>'
        f'<span class="k"><i></i>keys refused (at the top: {number(touched)})</span></p>'
    )
    most_keys = max((keys for _, keys, _ in advice.distribution), default=1)
    spread = Plot(
        (1, most), (0.8, most_keys), log_x=True, log_y=True, x_label="most that a key needed",
        y_label="keys", title="How many keys needed how much",
    )  # fmt: skip
    for need, keys, automated in advice.distribution:
        spread.bar(need, 4, 0.8, keys, "allowed")
        if automated:
            spread.bar(need, 4, 0.8, automated, "refused")
    spread.mark(chosen.limit, f"{chosen.limit:,}")
    body += ["<h2>What keys need</h2>", spread.text()]
    body.append(
        '<p class="legend quiet"><span class="a"><i></i>keys</span><span class="r"><i></i>of'
        " these, keys that look automated</span></p>"
    )
    if advice.frontier:
        rates = [rate for rate, *_ in advice.frontier]
        tallest = max(max(bursts) for _, *bursts in advice.frontier)
        trade = Plot(
            (min(rates), max(rates)), (1, tallest), log_x=True, log_y=True,
            x_label="requests a second", y_label="burst",
            title="Rate against burst: what refuses nothing",
        )  # fmt: skip
        for index, kind in ((1, "quiet"), (2, "allowed"), (3, "keys")):
            trade.line([(row[0], row[index]) for row in advice.frontier], kind)
        if advice.bucket is not None:
            trade.dot(*advice.bucket, advice.limit or "")
        body += ["<h2>Rate against burst</h2>", trade.text()]
        body.append(
            '<p class="legend quiet"><span class="q"><i></i>half of the keys</span><span class="a">'
            '<i></i>99 % of the keys</span><span class="k"><i></i>all that do not look automated'
            "</span></p>"
        )
    return body


def _timeline(timeline: Timeline, title: str) -> str:
    if not timeline.asked:
        return ""
    width = timeline.width / SECOND
    start = timeline.start / SECOND
    end = start + width * len(timeline.asked)
    times = [start + width * (at + 0.5) for at in range(len(timeline.asked))]
    asked = Plot(
        (start, end), (0, max(timeline.asked) / width), title=f"Requests over time: {title}",
        y_label="asked a second", time_x=True, height=170,
    )  # fmt: skip
    asked.area(
        [(at, count / width) for at, count in zip(times, timeline.asked, strict=True)], "allowed"
    )
    out = asked.text()
    if any(timeline.refused):
        # On an axis of its own, so that a thousandth can be seen.
        refused = Plot(
            (start, end), (0, max(timeline.refused) / width), title=f"Refused over time: {title}",
            y_label="refused a second", time_x=True, height=120,
        )  # fmt: skip
        refused.area(
            [(at, count / width) for at, count in zip(times, timeline.refused, strict=True)],
            "refused",
        )
        out += refused.text()
    return out


def _limits_of_the_log(warnings: Sequence[str]) -> list[str]:
    if not warnings:
        return []
    items = "".join(f"<li>{_text(each, 400)}</li>" for each in warnings)
    return ["<h2>What this log cannot tell</h2>", f"<ul>{items}</ul>"]


def _how(text: str, notes: Sequence[str]) -> list[str]:
    lines = "".join(f"<p class=quiet>{_text(note, 400)}</p>" for note in notes)
    return ["<h2>How it was computed</h2>", f'<p class="quiet">{escape(text)}</p>', lines]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = "".join(
        f'<th class="n">{escape(column[1:])}</th>'
        if column.startswith(">")
        else f"<th>{escape(column)}</th>"
        for column in columns
    )
    lines = []
    for row in rows:
        cells = "".join(
            f'<td class="n">{_text(cell)}</td>'
            if column.startswith(">")
            else f'<td class="key"><bdi>{_text(cell, 90)}</bdi></td>'
            if at == 0
            else f"<td><bdi>{_text(cell, 160)}</bdi></td>"
            for at, (column, cell) in enumerate(zip(columns, row, strict=True))
        )
        lines.append(f"<tr>{cells}</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _text(value: str, most: int = 200) -> str:
    """Escaped for HTML, and without characters that change how others are read."""
    lines = value.split("\n")
    return "\n".join(escape(safe(line, most)) for line in lines)


def _page(title: str, body: Sequence[str]) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        + "\n".join(body)
        + "</body></html>\n"
    )
