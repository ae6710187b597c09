"""Checks the arguments that both limiters take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from enum import Enum

from penstock.combined import parts_of
from penstock.durations import Duration, parse_duration
from penstock.errors import InvalidKey, PenstockError
from penstock.limits import Limit
from penstock.stores.base import ENDLESS, Counters, check_cost, check_key

LONGEST_WAIT = 10**8  # seconds: three years


class AllKeys(Enum):
    """What `reset` forgets without a key. None is no key: it may be a mistake."""

    ALL = "all"

    def __repr__(self) -> str:
        return "ALL_KEYS"


ALL_KEYS = AllKeys.ALL

# An argument of `hit_all`: key, limit and, if it is not 1, cost.
Item = tuple[str, Limit | str | None] | tuple[str, Limit | str | None, int]


def timeout_ns(timeout: Duration | None, name: str = "timeout") -> int | None:
    """A duration as nanoseconds; ``None`` and infinity mean without end."""
    if timeout is None:
        return None
    if isinstance(timeout, (str, timedelta)):
        if timeout == timedelta(0):
            return 0
        return parse_duration(timeout, name)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise ValueError(
            f"{name} is a number of seconds of at least 0, a duration such as '5s', or None, not"
            f" {timeout!r:.100}"
        )
    # Longer than anybody waits, infinity included, is without end.
    return round(timeout * 1e9) if timeout < LONGEST_WAIT else None


def patience_ns(max_delay: Duration | None) -> int | None:
    """How far ahead a reservation may be, as nanoseconds; -1 is any distance, None not at all."""
    if max_delay is None:
        return None
    patience = timeout_ns(max_delay, "max_delay")
    return ENDLESS if patience is None else patience


def check_name(name: str | None) -> str | None:
    """The name of a limiter, or an error."""
    if name is not None and not (isinstance(name, str) and name):
        raise TypeError(f"name is a non-empty str, such as 'search', not {name!r:.100}")
    return name


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
        for part in parts_of(counters):
            merged[part, key] = merged.get((part, key), 0) + cost
    if not merged:
        raise PenstockError("hit_all was given nothing to decide on")
    return [(counters, key, cost) for (counters, key), cost in merged.items()]
