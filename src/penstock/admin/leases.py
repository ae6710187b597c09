"""Leases: the keys that a process leases, and who holds how much of each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from penstock.metrics import Hashed
from penstock.stores.base import Store

if TYPE_CHECKING:
    from penstock.stores.leased import LeasedStore

logger = logging.getLogger("penstock.admin")

# Of each process, and of all of them: more is nothing that people read.
MOST = 20


async def look(store: Store, hashed: Hashed | None = None) -> dict[str, Any]:
    """The busiest keys that this process leases. With ``hashed``, values are not shown."""
    if not store.can_lease:
        return {"total": 0, "keys": []}
    leased = cast("LeasedStore", store)
    try:
        keys = [asdict(key) for key in await asyncio.to_thread(leased.leased_keys, MOST)]
    except Exception as error:  # redis-py lets many kinds through
        logger.debug("the holders of leases are not known: %s", type(error).__name__)
        keys = []
    for row in keys:
        del row["units"], row["demand"]  # this process is one of the holders
        row["key"] = row["key"] if hashed is None else _hidden(row["key"], hashed)
    return {"total": leased.stats().leases, "keys": keys}


def merged(looks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Of all workers: a key that several lease is one row, with the holders of all of them."""
    total = 0
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for look in looks:
        total += look["total"]
        for row in look["keys"]:
            known = rows.setdefault((row["limit"], row["key"]), {**row, "holders": {}})
            known["holders"].update({holder["instance"]: holder for holder in row["holders"]})
    keys = []
    for row in rows.values():
        holders = list(row["holders"].values())
        holders.sort(key=lambda holder: (-holder["units"], holder["instance"]))
        sums = {name: sum(each[name] for each in holders) for name in ("units", "demand")}
        keys.append({**row, **sums, "holders": holders})
    keys.sort(key=lambda row: (-row["demand"], row["key"], row["limit"]))
    return {"total": total, "keys": keys[:MOST]}


def _hidden(key: str, hashed: Hashed) -> str:
    """A key of a rule, ``api|user=42``, without its values."""
    domain, *parts = key.split("|")
    pairs = [(name, value) for name, _, value in (part.partition("=") for part in parts)]
    return f"{domain}|{hashed(pairs)}"
