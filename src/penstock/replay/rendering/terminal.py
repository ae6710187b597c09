"""Prints sections: with rich where it is installed (``penstock[report]``), else as plain text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from penstock.replay.rendering.sections import Section


def print_sections(sections: Sequence[Section], out: TextIO | None = None) -> None:
    stream = sys.stdout if out is None else out
    try:
        import rich  # noqa: F401  # whether it is there
    except ModuleNotFoundError:
        print(as_text(sections), file=stream)
    else:
        _print_rich(sections, stream)


def as_text(sections: Sequence[Section]) -> str:
    """Plain text with aligned columns."""
    lines: list[str] = []
    for section in sections:
        if lines:
            lines.append("")
        if section.title:
            lines.append(section.title.upper())
        lines += section.lines
        if section.columns:
            heads = [column.removeprefix(">") for column in section.columns]
            widths = [
                max(len(text) for text in texts) for texts in zip(heads, *section.rows, strict=True)
            ]
            for row in [heads, *section.rows]:
                cells = [
                    text.rjust(width) if column.startswith(">") else text.ljust(width)
                    for text, width, column in zip(row, widths, section.columns, strict=True)
                ]
                lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _print_rich(sections: Sequence[Section], stream: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = None if stream.isatty() else 160
    console = Console(file=stream, highlight=False, width=width)
    # Captured: at a closed pipe, rich would end the process.
    with console.capture() as captured:
        for number, section in enumerate(sections):
            if number:
                console.print()
            if section.title:
                console.print(Text(section.title, style="bold"))
            for line in section.lines:
                bold = number == 0 and line is section.lines[0]
                console.print(
                    Text(line, style="bold" if bold else ""), soft_wrap=section.is_verbatim
                )
            if section.columns:
                table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
                for column in section.columns:
                    table.add_column(
                        column.removeprefix(">"),
                        justify="right" if column.startswith(">") else "left",
                        overflow="fold",
                    )
                for row in section.rows:
                    table.add_row(*[Text(cell) for cell in row])
                console.print(table)
    stream.write(captured.get())
