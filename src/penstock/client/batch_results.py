"""The result for each caller of a batch, from what its function returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.errors import PenstockError


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def matched(name: str, items: Sequence[Any], answer: Any) -> list[Any]:
    """For each item its result, or an error of its own."""
    if isinstance(answer, Mapping):
        return [
            answer[item]
            if item in answer
            else PenstockError(f"{name} returned nothing for {item!r}")
            for item in items
        ]
    if isinstance(answer, (str, bytes)) or not isinstance(answer, Sequence):
        raise PenstockError(
            f"{name} must return a list with a result for each item, or a mapping by item,"
            f" not {type(answer).__name__}"
        )
    if len(answer) != len(items):
        raise PenstockError(f"{name} returned {len(answer)} results for {len(items)} items")
    return list(answer)
