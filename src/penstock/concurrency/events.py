"""What is told about shared slots, beside `StoreDown` and `StoreUp`: see `penstock.events`."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.events import Event


@dataclass(frozen=True, slots=True)
class SlotDegraded(Event):
    """The store could not be asked for a slot, and ``policy`` let somebody in or refused it."""

    key: str
    policy: str
    reason: str


@dataclass(frozen=True, slots=True)
class SlotLost(Event):
    """A slot is held by somebody whose lease could not be renewed in time.

    ``holder`` names the process, as host, number and a random word.
    """

    key: str
    holder: str
