"""Who makes the change that the current task makes: set by the admin API, read by the store."""

from __future__ import annotations

from contextvars import ContextVar

AUTHOR: ContextVar[str] = ContextVar("author", default="")
