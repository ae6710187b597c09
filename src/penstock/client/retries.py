"""When a refused call is sent again, and how often at most.

After its n-th refusal a call waits for ``Retry-After``, if given, plus a random time from 0 to
``min(longest, first * 2^(n-1))`` ("full jitter"). The time is added, so that no retry is early and
calls that were refused together do not come back together.

The *budget* bounds all calls to one key together: each call adds ``budget`` (a tenth), each retry
takes one. It starts at ``floor`` and never holds more than ten times that. So there are at most
``floor + budget * calls`` retries: an overloaded server sees a tenth more calls, not several
times as many.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})
BUDGET_HOLDS = 10


class Retries:
    """Which calls are retried, and how often: ``Retries(most=5)``.

    - ``most``: retries of one call; 0 turns them off
    - ``methods``: which may be sent twice; by default those that HTTP calls idempotent, and any
      request with an ``Idempotency-Key``. POST is not among them, not even after a 429: the
      server may have passed on the 429 of another service when half of the work was done. Name
      it if that is safe for you
    - ``errors``: whether to retry when the connection failed or timed out
    - ``budget``, ``floor``: retries of all calls to one key together: at most this part of them,
      plus ``floor``
    - ``first``, ``longest``: the backoff, in seconds
    """

    __slots__ = ("budget", "errors", "first", "floor", "longest", "methods", "most")

    def __init__(
        self,
        most: int = 5,
        *,
        methods: Iterable[str] = IDEMPOTENT,
        errors: bool = False,
        budget: float = 0.1,
        floor: int = 10,
        first: float = 0.5,
        longest: float = 30.0,
    ) -> None:
        self.most = _whole(most, "most")
        self.methods = _methods(methods)
        if not isinstance(errors, bool):
            raise TypeError(f"errors must be True or False, not {errors!r:.100}")
        self.errors = errors
        self.budget = _number(budget, "budget")
        if self.budget > 1:
            raise ValueError(f"budget must be a part of all calls, such as 0.1, not {budget!r}")
        self.floor = _whole(floor, "floor")
        self.first = _number(first, "first")
        self.longest = _number(longest, "longest")

    def may_repeat(self, method: str, keyed: bool) -> bool:
        """Whether it is safe to send the request twice."""
        return keyed or method in self.methods

    def backoff(self, refusals: int, chance: float) -> float:
        """Seconds to wait after this many refusals; ``chance`` is from 0 to 1."""
        # Beyond 2^32 it is ``longest`` anyway, and the power would overflow.
        return chance * min(self.longest, self.first * 2.0 ** min(refusals - 1, 32))

    def __repr__(self) -> str:
        methods = "" if self.methods == IDEMPOTENT else f", methods={sorted(self.methods)}"
        errors = ", errors=True" if self.errors else ""
        return f"Retries({self.most}{methods}{errors}, budget={self.budget}, floor={self.floor})"


class Budget:
    """How many retries are left, for all calls to one key."""

    def __init__(self, retries: Retries) -> None:
        self._each = retries.budget
        self._most = retries.floor * BUDGET_HOLDS
        self._left = float(retries.floor)
        self._lock = threading.Lock()

    def call(self) -> None:
        """Add the part of a new call."""
        with self._lock:
            self._left = min(self._left + self._each, max(self._most, 1.0))

    def take(self) -> bool:
        """Take one retry, if the budget has one."""
        with self._lock:
            # Ten tenths are one, despite rounding.
            if self._left < 1 - 1e-9:
                return False
            self._left = max(0.0, self._left - 1)
            return True


def _whole(value: object, name: str) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be a whole number of at least 0, not {value!r:.100}")
    return value


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise ValueError(f"{name} must be a number of at least 0, not {value!r:.100}")
    return float(value)


def _methods(methods: object) -> frozenset[str]:
    if isinstance(methods, str) or not isinstance(methods, Iterable):
        raise TypeError(f"methods must be a list such as ['GET', 'POST'], not {methods!r:.100}")
    names = list(methods)
    wrong = [name for name in names if not isinstance(name, str) or not name]
    if wrong:
        raise TypeError(f"methods must be names such as 'GET', not {wrong[0]!r:.100}")
    return frozenset(name.upper() for name in names)
