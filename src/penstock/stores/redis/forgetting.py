"""Forgets all keys of one limit or of one store, by SCAN: slow, and not in one step.

Only keys that a store with this prefix has written for its counters are removed. Those of stores
with a longer prefix, of slots and of anybody else stay.
"""

from __future__ import annotations

import re

from penstock import keys
from penstock.stores.redis.clients import Client

_GLOB = re.compile(r"([*?\[\]^\\])")
# What follows the prefix: perhaps a tag, perhaps a name, and the limit, which begins with a digit.
_COUNTER = re.compile(rb"(\{[^}]*\}:)?(@[^:]*:)?[0-9][^:]*/[^:]*:.")
_BATCH = 1000


def forget_counters(client: Client, prefix: str) -> int:
    """Remove all counters of a store; how many there were."""
    start = keys.encode(f"{prefix}:")
    return _forget(client, f"{_escaped(prefix)}:*", start, _COUNTER)


def forget_limit(client: Client, prefix: str, limit: str, name: str | None, tagged: bool) -> int:
    """Remove the counters of one limit; how many there were."""
    if not tagged:
        head = keys.counter_head(prefix, limit, None, name)
        return _forget(client, f"{_escaped(head)}*", keys.encode(head), None)
    start = keys.encode(f"{prefix}:")
    rest = keys.counter_head("", limit, None, name)
    tags = re.compile(rb"\{[^}]*\}" + re.escape(keys.encode(rest)))
    return _forget(client, f"{_escaped(prefix)}:{{*}}{_escaped(rest)}*", start, tags)


def _forget(client: Client, pattern: str, start: bytes, rest: re.Pattern[bytes] | None) -> int:
    removed = 0
    batch: list[bytes] = []
    for key in client.scan_iter(match=keys.encode(pattern), count=_BATCH):
        if key.startswith(start) and (rest is None or rest.match(key, len(start))):
            batch.append(key)
        if len(batch) >= _BATCH:
            removed += client.unlink(*batch)
            batch.clear()
    return removed + (client.unlink(*batch) if batch else 0)


def _escaped(text: str) -> str:
    return _GLOB.sub(r"\\\1", text)
