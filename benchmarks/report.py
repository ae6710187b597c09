"""Tables: one form for the terminal, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

OUT = Path(__file__).parent / "out"

Cell = str | int | float | None


@dataclass
class Table:
    """Rows of plain values; ``columns`` maps each heading to a format such as ``",.0f"``."""

    title: str
    columns: dict[str, str]
    rows: list[list[Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: Cell) -> None:
        assert len(cells) == len(self.columns), (self.title, cells)
        self.rows.append(list(cells))

    def text(self) -> str:
        """Aligned for a terminal: words to the left, numbers to the right."""
        lines = [list(self.columns), *self.shown()]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self.columns))]
        words = [spec == "" for spec in self.columns.values()]
        body = [
            "  ".join(
                cell.ljust(width) if word else cell.rjust(width)
                for cell, width, word in zip(line, widths, words, strict=True)
            ).rstrip()
            for line in lines
        ]
        body.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([self.title, "", *body, *(f"* {note}" for note in self.notes)])

    def markdown(self) -> str:
        words = [spec == "" for spec in self.columns.values()]
        lines = [
            f"## {self.title}",
            "",
            _pipes(list(self.columns)),
            _pipes(["---" if word else "---:" for word in words]),
            *(_pipes(row) for row in self.shown()),
            "",
            *(f"- {note}" for note in self.notes),
        ]
        return "\n".join(lines).rstrip() + "\n"

    def data(self) -> dict[str, object]:
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows, "notes": self.notes}

    def shown(self) -> list[list[str]]:
        specs = list(self.columns.values())
        return [
            [_show(cell, spec) for cell, spec in zip(row, specs, strict=True)] for row in self.rows
        ]


def _show(cell: Cell, spec: str) -> str:
    if cell is None:
        return "-"
    return cell if isinstance(cell, str) else format(cell, spec)


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def write(machine: dict[str, str], tables: Sequence[Table]) -> None:
    """Keep the run in ``out/results.md`` and ``out/results.json``."""
    OUT.mkdir(exist_ok=True)
    about = "".join(f"- {name}: {value}\n" for name, value in machine.items())
    parts = ["# Benchmark results\n", about, *(table.markdown() for table in tables)]
    (OUT / "results.md").write_text("\n".join(parts))
    results = {"machine": machine, "tables": [table.data() for table in tables]}
    (OUT / "results.json").write_text(json.dumps(results, indent=2) + "\n")
