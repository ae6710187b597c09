"""What a check asks of the store, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from penstock.decision import Decision
from penstock.stores.base import Counters

Item = tuple[Counters, str, int]
# (verb, counters, arguments)
Single = tuple[str, Counters, tuple[Any, ...]]


@dataclass(slots=True)
class Work:
    """For the store: groups, each to be decided as a whole, and single verbs.

    ``waits`` are other checks to wait for first: see `heritage.carry`.
    """

    groups: list[list[Item]] = field(default_factory=list)
    singles: list[Single] = field(default_factory=list)
    waits: Sequence[Future[None]] = ()


# What comes back: the decisions of each group, and what each single verb returned.
Done = tuple[Sequence[Sequence[Decision]], Sequence[Any]]
