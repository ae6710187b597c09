"""Checks the arguments that both limiters take."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.errors import InvalidKey, PenstockError
from penstock.limit import Limit
from penstock.stores.base import Counters, check_cost, check_key

LONGEST_WAIT = 10**8  # seconds: three years

# An argument of `hit_all`: key, limit and, if it is not 1, cost.
Item = tuple[str, Limit | str | None] | tuple[str, Limit | str | None, int]


def timeout_ns(timeout: float | None) -> int | None:
    """Seconds as nanoseconds; ``None`` and infinity mean without end."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise ValueError(f"timeout is a number of seconds of at least 0, or None, not {timeout!r}")
    # Longer than anybody waits, infinity included, is without end.
    return round(timeout * 1e9) if timeout < LONGEST_WAIT else None


def check_keys(keys: Iterable[str]) -> Iterable[str]:
    """``keys``, unless it is a ``str``, whose letters would be taken for keys."""
    if isinstance(keys, str):
        raise InvalidKey(f"hit_many takes several keys, not the one str {keys!r:.100}")
    return keys


def merge_items(
    find: Callable[[Limit | str | None], Counters], items: Iterable[Item]
) -> list[tuple[Counters, str, int]]:
    """One entry for each key of each limit; the costs of a key that is named twice add up."""
    merged: dict[tuple[Counters, str], int] = {}
    for item in items:
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
