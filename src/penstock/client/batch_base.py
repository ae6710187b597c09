"""What batches of threads and of tasks share: their options, and a result for each item."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from penstock.clock import Clock
from penstock.errors import PenstockError

Item = TypeVar("Item")
Result = TypeVar("Result")


class BatchBase(ABC, Generic[Item, Result]):
    def __init__(
        self, function: Callable[[list[Item]], Any], size: int, within: float, clock: Clock | None
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name = getattr(function, "__qualname__", None) or repr(function)
        self._size = size
        self._within = within
        self._clock = clock
        self._closed = False

    @abstractmethod
    def __call__(self, item: Item) -> Any:
        """The result for ``item``, from one call for many items."""

    def _check_open(self) -> None:
        if self._closed:
            raise PenstockError(f"{self._name} was closed")

    def _results(self, items: Sequence[Item], returned: Any) -> list[Any]:
        """For each item its result, or an error."""
        if isinstance(returned, Mapping):
            return [
                returned[item]
                if item in returned
                else PenstockError(f"{self._name} returned nothing for {item!r}")
                for item in items
            ]
        if isinstance(returned, (str, bytes)) or not isinstance(returned, Sequence):
            raise PenstockError(
                f"{self._name} must return a list with a result for each item, or a mapping by"
                f" item, not {type(returned).__name__}"
            )
        if len(returned) != len(items):
            raise PenstockError(
                f"{self._name} returned {len(returned)} results for {len(items)} items"
            )
        return list(returned)
