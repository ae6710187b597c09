"""Events about shared slots, in addition to `StoreDown` and `StoreUp`: see `penstock.events`."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.events import Event


@dataclass(frozen=True, slots=True)
class SlotDegraded(Event):
    """The store could not be asked for a slot, and ``policy`` admitted or refused the call."""

    key: str
    policy: str
    reason: str


@dataclass(frozen=True, slots=True)
class SlotLost(Event):
    """The lease of a slot that is in use could not be renewed in time.

    ``holder`` names the process: host, process id and a random part.
    """

    key: str
    holder: str
