"""Backends by URL: what ``KeyValue("redis://localhost")`` opens.

::

    memory:                     in this process
    file:state/kv.db            a SQLite file, shared by all processes of a host
    redis://localhost:6379/0    Redis or Valkey, by any URL that a RedisStore reads
"""

from __future__ import annotations

import difflib
import re
from typing import Any

from penstock.clock import Clock
from penstock.kv.backend import Backend
from penstock.kv.file import FileBackend
from penstock.kv.memory import MemoryBackend

FORMS = (
    "'memory:', 'file:path/to/file', 'redis://host:6379/0', 'rediss://', 'valkey://', 'unix://',"
    " 'redis+sentinel://' or 'redis+cluster://'"
)
_REMOTE = re.compile(r"(redis|valkey)s?(\+(sentinel|cluster))?|unix")
_SCHEMES = (
    "memory", "file", "redis", "rediss", "valkey", "valkeys", "unix", "redis+sentinel",
    "redis+cluster",
)  # fmt: skip


def open_backend(where: Any, clock: Clock | None = None, **options: Any) -> Backend:
    """``options`` are those of `RedisBackend`; others have no use for them."""
    if hasattr(where, "wakeups"):  # a backend, which several may share
        backend: Backend = where
        return backend
    local: dict[str, Any] = {} if clock is None else {"clock": clock}
    if isinstance(where, str):
        scheme, colon, rest = where.partition(":")
        if scheme == "memory" and colon and rest in ("", "//"):
            _check_unused(options, "memory")
            return MemoryBackend(**local)
        if scheme == "file" and rest.strip("/"):
            _check_unused(options, "a file")
            return FileBackend(rest.removeprefix("//"), **local)
        if not (_REMOTE.fullmatch(scheme) and rest.startswith("//")):
            raise ValueError(_unknown(scheme, bool(colon)))
    elif not (hasattr(where, "connection_pool") or hasattr(where, "nodes_manager")):
        raise TypeError(f"a key-value store is named by a URL: {FORMS}; not {where!r:.100}")
    try:
        from penstock.kv.redis import RedisBackend  # imported here: an extra
    except ModuleNotFoundError as error:
        if error.name not in ("redis", "hiredis"):
            raise
        raise ModuleNotFoundError(
            f"a key-value store in Redis needs {error.name}: pip install 'penstock[redis]'",
            name=error.name,
        ) from None
    return RedisBackend(where, **{name: v for name, v in options.items() if v is not None})


def _check_unused(options: dict[str, Any], kind: str) -> None:
    if options.get("replicas"):
        raise ValueError(f"replicas is for Redis: {kind} has none")


def _unknown(scheme: str, colon: bool) -> str:
    """Without the rest of the URL: any part of it may be a part of a password."""
    if scheme in _SCHEMES:
        return f"the URL of the key-value store is incomplete after {scheme!r}: write {FORMS}"
    close = difflib.get_close_matches(scheme.lower(), _SCHEMES, 1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    if not colon:
        hint = f" (did you mean 'file:{scheme:.40}'?)" if "/" in scheme or "." in scheme else hint
    return f"the URL of a key-value store does not begin with {scheme!r:.40}{hint}: write {FORMS}"
