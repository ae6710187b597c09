"""The store that the service counts in, as ``--store`` names it.

Workers share an anonymous file in memory. The supervisor creates and holds it, and workers
inherit its descriptor, also after a restart. No other process can reach it, and the kernel frees
it when the last of them ends, even by ``kill -9``.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.durations import parse_duration
from penstock.errors import StoreError
from penstock.rules.model import RuleSet
from penstock.rules.walk import all_rules, limits_of
from penstock.running.settings import Settings, SettingsError
from penstock.stores.base import Store
from penstock.stores.shared import SharedMemoryStore, bytes_needed, new_memory_file, sizes
from penstock.stores.url import LEASED, MEMORY, SHARED, store_from_url

logger = logging.getLogger("penstock.server")

_INHERITED = "descriptor:"
DEFAULT_MAX_KEYS = 1_000_000
# Enough for every algorithm but sliding_log, and for a sliding_window with many cells.
LEAST_BYTES_PER_KEY = 128
# For limits that the home decides, over the distance.
HOME_DEADLINE = "500ms"


@contextlib.contextmanager
def resolve_store(settings: Settings, rules: RuleSet) -> Iterator[str]:
    """What ``auto`` and ``shared`` stand for: a name for `open_store`, here or in a worker."""
    where = settings.store
    if where.startswith(_INHERITED):
        raise SettingsError(_unknown(where))
    if where == "auto":
        where = MEMORY if settings.workers == 1 else SHARED
    if where != SHARED:
        yield where
        return
    max_keys, row = sizes_for(settings, rules)
    try:
        _warn_if_large(sizes(max_keys, row).file_bytes, max_keys, row)
        fd = new_memory_file(max_keys, row)
    except (StoreError, ValueError) as error:
        raise SettingsError(f"store: {error}") from None
    try:
        yield f"{_INHERITED}{fd}"
    finally:
        os.close(fd)


def inherited_fd(where: str) -> int | None:
    """The descriptor that a worker must inherit to open the store, if any."""
    return int(where.removeprefix(_INHERITED)) if where.startswith(_INHERITED) else None


def sizes_for(settings: Settings, rules: RuleSet) -> tuple[int, int]:
    """The number of keys and the bytes for each: from the settings, or what the rules need."""
    needs = (
        (bytes_needed(each.limit), rule.id, each.limit)
        for rule in all_rules(rules)
        for _, limits in limits_of(rule)
        for each in limits
    )
    needed, rule_id, limit = max(needs, key=lambda need: need[0], default=(0, "", None))
    row = settings.bytes_per_key
    if row is not None and row < needed:
        raise SettingsError(
            f"bytes_per_key is {row}, and rule {rule_id}: {limit} needs {needed}: raise"
            f" --bytes-per-key to {needed} or leave it out, or use an algorithm of constant size"
            " such as sliding_window"
        )
    return settings.max_keys or DEFAULT_MAX_KEYS, row or max(needed, LEAST_BYTES_PER_KEY)


def open_store(where: str, settings: Settings, rules: RuleSet) -> Store:
    fd = inherited_fd(where)
    if fd is not None:
        return SharedMemoryStore(fd)
    scheme, colon, path = where.partition(":")
    if not colon and scheme != MEMORY:
        raise SettingsError(_unknown(where))
    options: dict[str, Any]
    if scheme == MEMORY:
        options = {"max_keys": settings.max_keys or DEFAULT_MAX_KEYS}
    elif scheme == SHARED:
        options = _file_options(Path(path), settings, rules)
    else:
        options = {
            "deadline": settings.deadline,
            "on_failure": settings.on_failure,
            "share": settings.share,
        }
    leased = settings.leased or where.startswith(LEASED)
    try:
        store = store_from_url(where.removeprefix(LEASED), **options)
        if settings.region:
            store = _open_region(store, settings)
    except (ModuleNotFoundError, TypeError, ValueError) as error:
        raise SettingsError(f"store: {error}") from None
    if not leased:
        return store
    from penstock.stores.leased import LeasedStore  # needs the extra for Redis
    from penstock.stores.redis import RedisStore

    if not isinstance(store, RedisStore):
        raise SettingsError("leased needs a store in Redis: --store redis://...")
    return LeasedStore(store, replicas=settings.lease_replicas)


def _open_region(site: Store, settings: Settings) -> Store:
    from penstock.stores.redis import RedisStore  # needs the extra for Redis
    from penstock.stores.regions import RegionStore

    if not isinstance(site, RedisStore):
        raise SettingsError("region needs a store in Redis: --store redis://...")
    deadline = max(
        settings.deadline, HOME_DEADLINE, key=lambda text: parse_duration(text, "deadline")
    )
    home = RedisStore(
        settings.home, deadline=deadline, on_failure=settings.on_failure, share=settings.share
    )
    return RegionStore(
        site, home, region=settings.region, floor=settings.floor, lease=settings.region_lease
    )


def names_of_home(store: Store) -> tuple[str, ...]:
    """What events call the home, if the store is that of a region."""
    region: Any = getattr(store, "redis", store)
    return (region.home_name, region.home.name) if hasattr(region, "home_name") else ()


def _file_options(path: Path, settings: Settings, rules: RuleSet) -> dict[str, Any]:
    """An existing file keeps its sizes, unless the settings name others, which is an error."""
    max_keys, row = sizes_for(settings, rules)
    if path.exists():
        return {"max_keys": settings.max_keys, "bytes_per_key": settings.bytes_per_key}
    return {"max_keys": max_keys, "bytes_per_key": row}


def describe(where: str, settings: Settings, rules: RuleSet) -> str:
    """For logs. A URL may still contain a password."""
    if where == MEMORY:
        return f"{MEMORY}, {settings.max_keys or DEFAULT_MAX_KEYS} keys"
    if inherited_fd(where) is None:
        region = f", region {settings.region}" if settings.region else ""
        return f"{where}{region}, leased" if settings.leased else f"{where}{region}"
    return "{}, {} keys of {} bytes".format(SHARED, *sizes_for(settings, rules))


def _unknown(where: str) -> str:
    return f"store is memory, shared, shared:PATH or a URL, not {where!r:.100}"


def _warn_if_large(most: int, max_keys: int, row: int) -> None:
    """Memory is allocated as keys come, so it may be enough for a long time."""
    available = _available_memory()
    if available is not None and most > available:
        logger.warning(
            "the store may grow to %.1f GB, %d keys of %d bytes, and %.1f GB of memory are"
            " available: lower --max-keys, or use sliding_window in place of a long sliding_log",
            most / 1e9, max_keys, row, available / 1e9,
        )  # fmt: skip


def _available_memory() -> int | None:
    """Of the machine, or of the container if it has less."""
    amounts = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/meminfo").read_text()
        amounts.append(int(text.partition("MemAvailable:")[2].split()[0]) * 1024)
    with contextlib.suppress(OSError, ValueError):
        folder = Path("/sys/fs/cgroup")
        most = int((folder / "memory.max").read_text())
        amounts.append(most - int((folder / "memory.current").read_text()))
    return min(amounts, default=None)
