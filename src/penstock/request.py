"""Checks and joins what both limiters are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.errors import InvalidKey, PenstockError
from penstock.limit import Limit
from penstock.stores.base import Counters, check_cost, check_key

LONGEST_WAIT = 10**8  # seconds: three years

Wanted = tuple[str, Limit | str | None] | tuple[str, Limit | str | None, int]


def timeout_ns(timeout: float | None) -> int | None:
    """Seconds as nanoseconds; ``None`` and infinity mean without end."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise ValueError(f"timeout is a number of seconds of at least 0, or None, not {timeout!r}")
    # What is longer than anybody waits, infinity included, is without end.
    return round(timeout * 1e9) if timeout < LONGEST_WAIT else None


def several(keys: Iterable[str]) -> Iterable[str]:
    """``keys``, unless it is one ``str``, whose letters would be taken for keys."""
    if isinstance(keys, str):
        raise InvalidKey(f"hit_many takes several keys, not the one str {keys!r:.100}")
    return keys


def merge(
    find: Callable[[Limit | str | None], Counters], wanted: Iterable[Wanted]
) -> list[tuple[Counters, str, int]]:
    """One item for each key of each limit: naming one twice asks for both costs together."""
    merged: dict[tuple[Counters, str], int] = {}
    for item in wanted:
        if not isinstance(item, tuple) or len(item) not in (2, 3):
            raise PenstockError(
                f"hit_all takes (key, limit) or (key, limit, cost) tuples, not {item!r:.100}"
            )
        counters, key = find(item[1]), check_key(item[0])
        cost = check_cost(item[2]) if len(item) == 3 else 1
        merged[counters, key] = merged.get((counters, key), 0) + cost
    if not merged:
        raise PenstockError("hit_all was given nothing to decide on")
    return [(counters, key, cost) for (counters, key), cost in merged.items()]
