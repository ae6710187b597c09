"""The options of a transport, checked when it is created; the same for all three."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from penstock.arguments import timeout_ns
from penstock.async_limiter import AsyncLimiter
from penstock.client.retries import Retries
from penstock.clock import MONOTONIC, WALL, Clock
from penstock.errors import LimitError
from penstock.limit import Limit
from penstock.limiter import Limiter
from penstock.stores.base import check_clock
from penstock.stores.memory import MemoryStore

DEFAULT_TIMEOUT = 60.0

LocalLimit = Limit | str | Limiter | AsyncLimiter


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked options with every default filled in. ``timeout`` is nanoseconds."""

    limiter: Limiter | None
    retries: Retries
    timeout: int | None
    learn: bool
    clock: Clock
    wall: Clock
    chance: Callable[[], float]


def settings(
    limit: LocalLimit | None,
    retries: Retries | int,
    timeout: float | None,
    learn: bool,
    clock: Clock | None,
    chance: Callable[[], float] | None,
) -> Settings:
    """The options as `Settings`; raises an error that says what is wrong."""
    if not isinstance(learn, bool):
        raise TypeError(f"learn must be True or False, not {learn!r:.100}")
    if chance is not None and not callable(chance):
        raise TypeError(f"chance must be a function such as random.random, not {chance!r:.100}")
    return Settings(
        limiter=_limiter(limit, check_clock(clock)),
        retries=retries if isinstance(retries, Retries) else Retries(retries),
        timeout=timeout_ns(timeout),
        learn=learn,
        clock=clock or MONOTONIC,
        # A clock that is passed in also gives the time of day.
        wall=clock or WALL,
        chance=chance or random.random,
    )


def _limiter(limit: LocalLimit | None, clock: Clock | None) -> Limiter | None:
    if limit is None:
        return None
    if isinstance(limit, (Limit, str)):
        return Limiter(limit, MemoryStore(clock=clock))
    limiter = limit._limiter if isinstance(limit, AsyncLimiter) else limit
    if not isinstance(limiter, Limiter):
        raise LimitError(
            f"limit must be a limit such as '10/second', or a Limiter of one, not {limit!r:.100}"
        )
    limiter.counters(None)  # it must have a limit of its own
    return limiter
