# cython: embedsignature=True, embedsignature.format=python
"""Decision: the one result of asking, whatever the algorithm or the store.

An algorithm fills it in the units it thinks in (nanoseconds, and ``_room`` in
steps of ``_unit``); what people read is worked out when they read it, because
most callers only look at the truth value.
"""

from __future__ import annotations

from typing import Any

from penstock.limits import Limit

try:
    import cython  # needed to compile this, not to run it
except ModuleNotFoundError:
    from penstock import _no_cython as cython


# One is made on every call: its memory is reused, and the garbage collector need not
# know it, as it refers to a Limit, which can never refer back.
@cython.freelist(64)
@cython.no_gc
@cython.final
@cython.cclass
class Decision:
    """May this go ahead? ``if decision:`` is all that most callers need.

    - ``allowed``: the answer, also as the truth value
    - ``limit``: the `Limit` that decided
    - ``remaining``: whole units that are left now
    - ``retry_after``: seconds until the same request would be allowed, if nothing
      else happens to the key: at that instant, not a nanosecond before. 0.0 when
      allowed, ``None`` when no waiting helps because the cost is above the burst
    - ``reset_after``: seconds until the key is as good as new
    - ``last``: this hit took the last unit
    - ``delay``: seconds to wait before going ahead (leaky bucket: its place in line)
    - ``overrun``: let through above a soft limit, within its grace time
    - ``degraded``: decided without the shared store, by its failure policy
    """

    _limit: Limit
    _allowed: bool
    _overrun: bool
    _degraded: bool
    _room: int
    _unit: int
    _retry: int
    _reset: int
    _delay: int
    _mark: int

    def __bool__(self) -> bool:
        return self._allowed

    def __eq__(self, other: object) -> Any:
        """``hit(key) == False`` is what it says. Otherwise a decision equals only itself."""
        return self._allowed == other if isinstance(other, bool) else NotImplemented

    def __hash__(self) -> int:
        return id(self) >> 4

    @property
    def allowed(self) -> bool:
        return self._allowed

    @property
    def limit(self) -> Limit:
        return self._limit

    @property
    def remaining(self) -> int:
        return self._room // self._unit if self._room > 0 else 0

    @property
    def retry_after(self) -> float | None:
        return None if self._retry < 0 else self._retry / 1e9

    @property
    def reset_after(self) -> float:
        return self._reset / 1e9

    @property
    def last(self) -> bool:
        return self._allowed and self._room < self._unit and not self._overrun

    @property
    def delay(self) -> float:
        return self._delay / 1e9

    @property
    def overrun(self) -> bool:
        return self._overrun

    @property
    def degraded(self) -> bool:
        return self._degraded

    def shown_remaining(self) -> int:
        """What answers tell as remaining: see `penstock.numbers`."""
        return self._room // self._unit if self._allowed and self._room > 0 else 0

    def shown_reset(self) -> int:
        """What answers tell as reset, in nanoseconds; 0 where nothing is used."""
        if not self._allowed and self._retry >= 0:
            return self._retry
        # A unit of a bucket is the time that it takes to come back, and room is time, too.
        if self._allowed and self._unit > 1 and self._room < self._unit:
            return self._unit - self._room
        return self._reset

    def refused(self, retry: int) -> Decision:
        """The same, refused after all, with a ``retry_after`` in nanoseconds."""
        out = new_decision(self._limit)
        out._allowed = False
        out._room, out._unit, out._reset = self._room, self._unit, self._reset
        out._retry = retry
        out._delay = 0
        out._mark = self._mark
        return out

    def as_degraded(self, limit: Limit, mark: int) -> Decision:
        """The same for ``limit``, made without the shared store, to be known by ``mark``."""
        out = new_decision(limit)
        out._allowed, out._overrun, out._degraded = self._allowed, self._overrun, True
        out._room, out._unit = self._room, self._unit
        out._retry, out._reset, out._delay = self._retry, self._reset, self._delay
        out._mark = mark
        return out

    def __repr__(self) -> str:
        words = [
            "allowed" if self._allowed else "refused",
            f"limit={str(self._limit)!r}",
            f"remaining={self.remaining}",
        ]
        if not self._allowed:
            words.append(f"retry_after={self.retry_after}")
        if self._delay:
            words.append(f"delay={self.delay}")
        words.append(f"reset_after={self.reset_after}")
        words += [name for name in ("last", "overrun", "degraded") if getattr(self, name)]
        return f"<Decision {' '.join(words)}>"


def new_decision(limit: Limit) -> Decision:
    """An empty decision of ``limit``, for an algorithm to fill."""
    out = Decision.__new__(Decision)
    out._limit = limit
    out._overrun = False
    out._degraded = False
    return out


def decided(
    limit: Limit,
    allowed: bool,
    room: int,
    unit: int,
    retry: int,
    reset: int,
    delay: int,
    overrun: bool,
    mark: int,
    degraded: bool = False,
) -> Decision:
    """The decision that was made elsewhere, from its numbers."""
    out = new_decision(limit)
    out._allowed = allowed
    out._room, out._unit = room, unit
    out._retry, out._reset, out._delay = retry, reset, delay
    out._overrun = overrun
    out._mark = mark
    out._degraded = degraded
    return out
