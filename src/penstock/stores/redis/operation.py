"""KeyOperation: one operation on a key of some counters, and the key and policy it is sent with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock import keys
from penstock.algorithms.words import NO_MARK
from penstock.clock import Clock
from penstock.limits import Limit
from penstock.stores.base import Counters, check_key
from penstock.stores.redis.script import Policy, policy

HIT: Final = "hit"
PEEK: Final = "peek"
ATTEMPT: Final = "attempt"
CHARGE: Final = "charge"
REFUND: Final = "refund"
RESERVE: Final = "reserve"
CANCEL: Final = "cancel"
RESET: Final = "reset"

TAKES = (HIT, ATTEMPT, RESERVE)
DECIDES = (HIT, PEEK, ATTEMPT, RESERVE)
GIVES_BACK = (REFUND, CANCEL)

_NO_POLICY = Policy.__new__(Policy)

Tag = Callable[[str], str]


def as_tag(tag: str | Tag | None) -> Tag | None:
    """A function of the key, even if the tag is one string for all keys."""
    if tag is None or callable(tag):
        return tag
    fixed = check_key(tag)
    return lambda key: fixed


class KeyedCounters(Counters):
    """Counters whose keys and policy are sent to the script."""

    def __init__(
        self, limit: Limit, clock: Clock, prefix: str, tag: Tag | None, name: str | None = None
    ) -> None:
        super().__init__(limit, clock)
        self.name = name
        self._tag = tag
        self._prefix = prefix
        self._head = keys.counter_head(prefix, limit.counted_as, None, name)
        self._started: int | None = None
        # Created now, so that a limit that Redis cannot hold fails here.
        self._policy = self.make_policy(clock.now())

    def redis_key(self, name: str) -> bytes:
        if self._tag is None:
            return keys.counter_key(self._head, name)
        tag = check_key(self._tag(name))
        head = keys.counter_head(self._prefix, self.limit.counted_as, tag, self.name)
        return keys.counter_key(head, name)

    def make_policy(self, now: int, started: int = 0) -> Policy:
        """What the script has to know: see `script.policy`."""
        return policy(self.limit, now, started)

    def policy_at(self, now: int) -> Policy:
        """The policy to send when the server's clock shows ``now``."""
        if self._started is None:
            self.renew_policy(now)
        return self._policy

    def renew_policy(self, now: int) -> None:
        """The script asks for this when the policy's calendar does not cover the present."""
        if self._started is None:
            self._started = now  # a warm-up begins with the first hit that is sent
        self._policy = self.make_policy(now, self._started)


class KeyOperation:
    """An operation on the key ``name`` of some counters; its policy is set when it is sent.

    ``mark`` and ``kept`` are used by refunds and cancellations; the ``mark`` of an attempt or a
    reservation is its patience. ``size`` is 1, except in a group, which passes as a whole or not
    at all: in its first operation it is the number of members. The other members, hits or attempts
    on keys of their own, follow directly and have a size of 0.
    """

    __slots__ = ("cost", "counters", "kept", "key", "mark", "name", "policy", "size", "verb")

    def __init__(
        self,
        counters: KeyedCounters,
        name: str,
        verb: str = HIT,
        cost: int = 1,
        mark: int = NO_MARK,
        kept: int = 0,
        size: int = 1,
    ) -> None:
        self.counters = counters
        self.name = name
        self.key = counters.redis_key(name)
        self.policy = _NO_POLICY
        self.verb = verb
        self.cost = cost
        self.mark = mark
        self.kept = kept
        self.size = size
