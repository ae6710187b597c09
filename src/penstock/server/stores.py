"""The store that the service was told to count in."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from penstock.server.settings import Settings, SettingsError
from penstock.stores.base import Store
from penstock.stores.memory import MemoryStore
from penstock.stores.shared import SharedMemoryStore

MEMORY, SHARED = "memory", "shared"


def resolved(settings: Settings) -> str:
    """What ``auto`` means here, and where a shared file lies if nobody said."""
    kind = settings.store
    if kind == "auto":
        kind = MEMORY if settings.workers == 1 else SHARED
    if kind == SHARED:
        return f"{SHARED}:{_new_file()}"
    return kind


def _new_file() -> str:
    """In memory where there is such a place: it need not outlive the service."""
    shm = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="penstock-", dir=shm if os.access(shm, os.W_OK) else None)
    return str(Path(folder) / "limits")


def own_folder(settings: Settings, where: str) -> Path | None:
    """The folder that was made for a shared file, and goes with the service."""
    if settings.store not in ("auto", SHARED) or not where.startswith(f"{SHARED}:"):
        return None
    return Path(where.partition(":")[2]).parent


def open_store(where: str, settings: Settings) -> Store:
    if where == MEMORY:
        return MemoryStore()
    if where.startswith(f"{SHARED}:"):
        return SharedMemoryStore(where.partition(":")[2])
    if "://" not in where:
        raise SettingsError(f"store is memory, shared, shared:PATH or a URL, not {where!r:.100}")
    try:
        from penstock.stores.redis import RedisStore
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"a store in Redis needs {error.name}: pip install 'penstock[redis]'"
        ) from None
    try:
        return RedisStore(
            where,
            deadline=settings.deadline,
            on_failure=settings.on_failure,
            share=settings.share,
        )
    except (ValueError, TypeError) as error:
        raise SettingsError(f"store: {error}") from None
