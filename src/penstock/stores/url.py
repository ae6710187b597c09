"""Stores by URL: what ``store="redis://localhost"`` opens, everywhere a store is taken.

::

    memory:                          a MemoryStore
    shared:/dev/shm/limits           a SharedMemoryStore in this file
    redis://localhost:6379/0         a RedisStore, by any URL that it reads: see redis/address.py
    leased+redis://localhost:6379/0  a LeasedStore over that RedisStore
"""

from __future__ import annotations

import difflib
import re
from typing import Any

from penstock.stores.base import Store
from penstock.stores.memory import MemoryStore
from penstock.stores.shared import SharedMemoryStore

MEMORY, SHARED, LEASED = "memory", "shared", "leased+"
_REMOTE = re.compile(r"(redis|valkey)s?(\+(sentinel|cluster))?|unix")
_SCHEMES = (MEMORY, SHARED, "redis", "rediss", "valkey", "valkeys", "unix", "redis+sentinel",
            "redis+cluster")  # fmt: skip
FORMS = (
    "'memory:', 'shared:/path/to/file', 'redis://host:6379/0', 'rediss://', 'valkey://',"
    " 'unix://', 'redis+sentinel://' or 'redis+cluster://', the last six also after 'leased+'"
)


def as_store(store: Store | str | None) -> Store:
    """The store that a limiter or a gate was given, by default a new `MemoryStore`."""
    if store is None:
        return MemoryStore()
    if isinstance(store, str):
        return store_from_url(store)
    if not isinstance(store, Store):
        raise TypeError(
            f"store is a Store such as MemoryStore(), or a URL such as 'redis://localhost', not"
            f" {store!r:.100}"
        )
    return store


def store_from_url(url: str, **options: Any) -> Store:
    """Open the store at ``url``; ``options`` are those of its class. The caller closes it."""
    scheme, _, rest = url.partition(":")
    if scheme == MEMORY and rest in ("", "//"):
        return MemoryStore(**options)
    if scheme == SHARED and rest.strip("/"):
        return SharedMemoryStore(rest.removeprefix("//"), **options)
    if _REMOTE.fullmatch(scheme.removeprefix(LEASED)) and rest.startswith("//"):
        from penstock.stores.redis import RedisStore  # imported here: an extra

        redis = RedisStore(url.removeprefix(LEASED), **options)
        if not scheme.startswith(LEASED):
            return redis
        from penstock.stores.leased import LeasedStore

        return LeasedStore(redis)
    raise ValueError(_unknown(scheme))


def is_url(text: str) -> bool:
    """Whether a text may be meant as a store's URL, even if it is a wrong one."""
    scheme, colon, rest = text.partition(":")
    scheme = scheme.lower().removeprefix(LEASED)
    return not colon or rest.startswith("/") or bool(difflib.get_close_matches(scheme, _SCHEMES, 1))


def _unknown(scheme: str) -> str:
    """Without the rest of the URL: any part of it may be a part of a password."""
    if scheme.removeprefix(LEASED) in _SCHEMES:
        return f"the store's URL is incomplete after {scheme!r}: write {FORMS}"
    close = difflib.get_close_matches(scheme.lower(), _SCHEMES, 1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"a store's URL does not begin with {scheme!r:.40}{hint}: write {FORMS}"
