"""The caller's side: HTTP clients that pace and retry their calls, and calls that are combined.

A request comes from httpx (`httpx.py`), requests (`requests.py`) or aiohttp (`aiohttp.py`), and
`calls.py` takes it from its place in the queue to its last answer: `pacer.py` says when it may be
sent, by what `rate_estimator.py` has learnt from the headers (`fields.py`), and `retries.py`
whether it is sent again. `batching.py` combines calls. May import the limiters.

The transports are imported on first use, so that none of the three libraries is needed for
another.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.client.batching import batch
from penstock.client.calls import NotSent, Tries
from penstock.client.retries import Retries

if TYPE_CHECKING:
    from penstock.client.aiohttp import PacedMiddleware
    from penstock.client.httpx import AsyncPacedTransport, PacedTransport
    from penstock.client.requests import PacedAdapter

__all__ = [
    "AsyncPacedTransport",
    "NotSent",
    "PacedAdapter",
    "PacedMiddleware",
    "PacedTransport",
    "Retries",
    "Tries",
    "batch",
]


_MODULES = {
    "AsyncPacedTransport": "httpx",
    "PacedTransport": "httpx",
    "PacedAdapter": "requests",
    "PacedMiddleware": "aiohttp",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
