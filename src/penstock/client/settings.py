"""The options that all transports share, checked when one is created."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from penstock.arguments import timeout_ns
from penstock.async_limiter import AsyncLimiter
from penstock.client.retries import Retries
from penstock.clock import MONOTONIC, WALL, Clock
from penstock.durations import parse_duration
from penstock.errors import LimitError
from penstock.limiter import Limiter
from penstock.limits import Limit
from penstock.stores.base import check_clock
from penstock.stores.memory import MemoryStore

DEFAULT_TIMEOUT = 60.0

LocalLimit = Limit | str | Limiter | AsyncLimiter
Timeout = float | str | timedelta | None
Inner = TypeVar("Inner")


class Settings:
    """The options, checked, with every default filled in."""

    def __init__(
        self,
        limit: LocalLimit | None,
        key: Callable[[Any], str],
        retries: Retries | int,
        timeout: Timeout,
        learn: bool,
        clock: Clock | None,
        chance: Callable[[], float] | None,
    ) -> None:
        if not isinstance(learn, bool):
            raise TypeError(f"learn must be True or False, not {learn!r:.100}")
        if chance is not None and not callable(chance):
            raise TypeError(f"chance must be a function such as random.random, not {chance!r:.100}")
        self.limiter = _limiter(limit, check_clock(clock))
        self.retries = retries if isinstance(retries, Retries) else Retries(retries)
        self.timeout = _timeout(timeout)
        self.learn = learn
        self.clock = clock or MONOTONIC
        # A clock that is passed in also gives the time of day.
        self.wall = clock or WALL
        self.chance = chance or random.random
        if not callable(key):
            raise TypeError(f"key must be a function of the request to a str, not {key!r:.100}")
        self.key = key


def _timeout(timeout: Timeout) -> int | None:
    """Nanoseconds; None means without end."""
    if isinstance(timeout, (str, timedelta)):
        return parse_duration(timeout, "timeout")
    return timeout_ns(timeout)


def check_known(owner: str, unknown: Iterable[str]) -> None:
    """Raise for an option of other libraries, with the one that was probably meant."""
    for name in unknown:
        if name in ("rate", "limits", "max_rate", "rps", "requests_per_second"):
            raise TypeError(f"{owner} has no {name}=: write limit='10/second'")
        if name in ("max_retries", "retry", "attempts", "total"):
            raise TypeError(f"{owner} has no {name}=: write retries=5, or retries=Retries(...)")
        raise TypeError(
            f"{owner} has no {name}=; it takes limit, key, retries, timeout, learn, transport,"
            " clock and chance"
        )


def check_inner(inner: Inner | None, kind: type[Inner], default: type[Inner], name: str) -> Inner:
    """The transport or adapter that sends."""
    if inner is not None and not isinstance(inner, kind):
        raise TypeError(f"{name} must be like {default.__name__}(), not {inner!r:.100}")
    return default() if inner is None else inner


def origin(scheme: str, host: str | None, port: int | None) -> str:
    """The default key of a request."""
    return f"{scheme}://{host}:{port or {'https': 443, 'http': 80}.get(scheme, 0)}"


def _limiter(limit: LocalLimit | None, clock: Clock | None) -> Limiter | None:
    if limit is None:
        return None
    if isinstance(limit, (Limit, str)):
        return Limiter(limit, MemoryStore(clock=clock), enabled=True)
    limiter = limit._limiter if isinstance(limit, AsyncLimiter) else limit
    if not isinstance(limiter, Limiter):
        raise LimitError(
            f"limit must be a limit such as '10/second', or a Limiter of one, not {limit!r:.100}"
        )
    limiter.counters(None)  # raises an error if it has no default limit
    return limiter
