"""DisabledStore: counts nothing and allows everything, for limiters with ``enabled=False``.

A limiter that is switched off has this in place of its store, so that the others pay nothing for
the switch. Wrong keys and costs are errors all the same.
"""

from __future__ import annotations

from penstock.algorithms.words import NO_MARK
from penstock.decision import Decision, decided
from penstock.limits import Limit
from penstock.stores.base import ENDLESS, Counters, Store, check_cost, check_key


class DisabledCounters(Counters):
    """Answers like a limit that nobody has used, and allows any cost."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit, None)

    def hit(self, key: str, cost: int) -> Decision:
        check_key(key)
        check_cost(cost)
        limit = self.limit
        buckets = limit.algorithm in ("token_bucket", "leaky_bucket")
        room = max(1, limit.burst if buckets else limit.amount)  # of 0, none was the last
        return decided(limit, True, room, 1, 0, 0, 0, False, NO_MARK)

    def peek(self, key: str, cost: int) -> Decision:
        return self.hit(key, cost)

    def attempt(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        return self.hit(key, cost)

    def reserve(self, key: str, cost: int, patience: int = ENDLESS) -> Decision:
        return self.hit(key, cost)

    def charge(self, key: str, cost: int) -> None:
        self.hit(key, cost)

    def refund(self, key: str, cost: int, mark: int = NO_MARK, kept: int = 0) -> None:
        self.hit(key, cost)

    def cancel(self, key: str, cost: int, mark: int, kept: int = 0) -> None:
        self.hit(key, cost)

    def reset(self, key: str) -> None:
        check_key(key)

    def clear(self) -> None:
        """There is nothing to forget."""


class DisabledStore(Store):
    """In place of ``store``, which is not asked."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store

    def make_counters(self, limit: Limit, name: str | None = None) -> Counters:
        return DisabledCounters(limit)

    def hit_each(
        self, wanted: list[tuple[Counters, str, int]], attempt: bool = False
    ) -> list[Decision]:
        return [counters.hit(key, cost) for counters, key, cost in wanted]

    def clear(self) -> None:
        """There is nothing to forget."""

    def close(self) -> None:
        self.store.close()

    def __repr__(self) -> str:
        return f"<{self.store!r}, switched off>"
