"""The caller's side: clients that wait their turn, and calls that are merged.

The transports are imported on first use, so that httpx is not needed for requests, nor the other
way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.batching import batch
from penstock.client.calls import NotSent, Tries
from penstock.client.retries import Retries

if TYPE_CHECKING:
    from penstock.client.httpx import AsyncPacedTransport, PacedTransport
    from penstock.client.requests import PacedAdapter

__all__ = [
    "AsyncPacedTransport",
    "NotSent",
    "PacedAdapter",
    "PacedTransport",
    "Retries",
    "Tries",
    "batch",
]


def __getattr__(name: str) -> object:
    if name in ("AsyncPacedTransport", "PacedTransport"):
        from penstock.client.httpx import AsyncPacedTransport, PacedTransport

        return PacedTransport if name == "PacedTransport" else AsyncPacedTransport
    if name == "PacedAdapter":
        from penstock.client.requests import PacedAdapter

        return PacedAdapter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
