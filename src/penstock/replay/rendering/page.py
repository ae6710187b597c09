"""The frame of a report: style, tables, and texts that cannot do any harm."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from penstock.replay.rendering.sections import safe

# Of plots, in the page and as files of their own. Colours have one meaning: teal is allowed,
# vermilion refused, violet is about keys, and ink is what was chosen.
PLOT_STYLE = """
:root{color-scheme:light dark;--ink:light-dark(#18181b,#f4f4f5);--paper:light-dark(#fff,#131316);
--quiet:light-dark(#5b5b66,#a3a3ad);--line:light-dark(#e4e4e7,#2e2e34);
--allowed:light-dark(#0f766e,#2dd4bf);--refused:light-dark(#c2410c,#fb923c);
--keys:light-dark(#6d28d9,#a78bfa);--soft:light-dark(#f4f4f5,#1d1d21)}
svg{font:11px system-ui,sans-serif;font-variant-numeric:tabular-nums}
svg text{font-size:11px;fill:var(--quiet)}
.axis{stroke:var(--quiet)}.grid{stroke:var(--line)}.line{fill:none;stroke-width:1.8}
.line.allowed{stroke:var(--allowed)}.line.refused{stroke:var(--refused)}
.line.keys{stroke:var(--keys);stroke-dasharray:6 4}.line.quiet{stroke:var(--quiet);
stroke-dasharray:2 3}.area.allowed{fill:var(--allowed);fill-opacity:.28}
.area.refused{fill:var(--refused);fill-opacity:.75}.bar.allowed{fill:var(--allowed)}
.bar.refused{fill:var(--refused)}.heat{fill:var(--allowed);stroke:var(--line)}
.band{fill:var(--allowed);fill-opacity:.12}line.chosen{stroke:var(--ink);stroke-width:1.5}
circle.chosen{fill:var(--ink)}svg text.chosen{fill:var(--ink);font-weight:600;font-size:12px}
"""
_STYLE = """
*{box-sizing:border-box}
body{margin:0 auto;max-width:892px;padding:28px 16px 60px;background:var(--paper);color:var(--ink);
font:14px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums}
h1{font-size:20px;line-height:1.4;margin:0 0 6px;text-wrap:balance}
h2{font-size:15px;margin:34px 0 6px}
p{margin:4px 0}.quiet{color:var(--quiet)}
table{border-collapse:collapse;width:100%;font-size:13px}
th{text-align:left;font-weight:400;color:var(--quiet);border-bottom:1px solid var(--line)}
th,td{padding:4px 10px 4px 0;vertical-align:top}td.n,th.n{text-align:right;white-space:nowrap}
th:last-child,td:last-child{padding-right:0}tr+tr td{border-top:1px solid var(--line)}
code,pre,td.key{font-family:ui-monospace,monospace;font-size:12.5px;overflow-wrap:anywhere}
td.key{min-width:15ch}
pre{background:var(--soft);border-radius:6px;padding:12px 14px;overflow:auto}
figure{margin:0}figure,.wide{overflow-x:auto}svg{width:100%;height:auto;display:block}
figcaption span{margin-right:16px}figcaption i{display:inline-block;width:18px;height:0;
margin-right:5px;vertical-align:middle;border-top:3px solid}figcaption{color:var(--quiet)}
.a i{border-color:var(--allowed)}.r i{border-color:var(--refused)}
.k i{border-color:var(--keys);border-top-style:dashed}
.q i{border-color:var(--quiet);border-top-style:dotted}
@media(max-width:640px){svg{min-width:620px}}
@media print{body{max-width:none;padding:0}h2{break-after:avoid}figure,tr,pre{break-inside:avoid}}
"""


def page(title: str, body: Sequence[str]) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{PLOT_STYLE}{_STYLE}</style></head><body>"
        + "\n".join(body)
        + "</body></html>\n"
    )


def standalone(svg: str) -> str:
    """A plot as a file: with its own style, and in the theme of whoever looks at it."""
    head, style = '<svg xmlns="http://www.w3.org/2000/svg"', f"<style>{PLOT_STYLE}</style>"
    svg = svg.replace("<svg", head, 1)
    end = svg.index(">") + 1
    paper = '<rect width="100%" height="100%" style="fill:var(--paper)"/>'
    return svg[:end] + style + paper + svg[end:] + "\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """``>`` before a column's name aligns it to the right. The first column has keys."""
    heads = "".join(
        f'<th class="n">{escape(column[1:])}</th>'
        if column.startswith(">")
        else f"<th>{escape(column)}</th>"
        for column in columns
    )
    lines = []
    for row in rows:
        cells = "".join(
            f'<td class="n">{text(cell)}</td>'
            if column.startswith(">")
            else f'<td class="key"><bdi>{text(cell, 90)}</bdi></td>'
            if at == 0
            else f"<td><bdi>{text(cell, 160)}</bdi></td>"
            for at, (column, cell) in enumerate(zip(columns, row, strict=True))
        )
        lines.append(f"<tr>{cells}</tr>")
    inside = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<div class="wide"><table>{inside}</table></div>'


def text(value: str, most: int = 200) -> str:
    """Escaped for HTML, and without characters that change how others are read."""
    return "\n".join(escape(safe(line, most)) for line in value.split("\n"))
