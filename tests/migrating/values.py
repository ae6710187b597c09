"""Rows of pages about limiters that are called directly: both sides give the same values."""

from __future__ import annotations

import asyncio
from typing import Any

from migrating.tables import Row, as_statements, names_of, run_in_loop

_TIMES = 7
_FUNCTION = "def function(): return 'done'"


def values(spans: tuple[str, ...], names: dict[str, Any]) -> list[Any]:
    """What a row gives when it runs several times: whole numbers, or else truth."""
    source = as_statements(spans, _FUNCTION)

    async def repeat() -> list[Any]:
        return [await run_in_loop(source, names) for _ in range(_TIMES)]

    return [_comparable(result) for result in asyncio.run(repeat())]


def _comparable(result: Any) -> Any:
    if result is None or type(result) is bool:
        return result
    return round(result) if isinstance(result, (int, float)) else bool(result)


def check_values(row: Row, section: str | None = None) -> None:
    """Both sides run. Where both give values, these are the same."""
    theirs = values(row.theirs, names_of(row.page, "py", section))
    ours = values(row.ours, names_of(row.page, "python", section))
    if None not in theirs + ours:
        assert (theirs == ours) is not row.differs, f"{theirs} {ours}"
