"""What every algorithm is: a pure step from state, cost and time to a decision.

``state`` is a row of 64-bit integers. ``state[0]`` is the time at which the row
means nothing any more: from then on the key is as good as new and its place in
the store is free. A row of zeros is a key that was never seen.

Compiled, ``state`` is a pointer into the store's table; uncompiled it is a
`Words`. Both are indexed from 0, and ``state + 2`` is the row from its third
word on, so that one algorithm can keep its own words before another's.

The clock may step back. No algorithm grants more for that: in time that went
forwards, no more is admitted than the limit allows. And none stays stuck for
longer than its own memory: state from a future that was taken back is moved to
the present.
"""

from __future__ import annotations

from penstock.algorithms.words import FOREVER, REFUSED, Words
from penstock.decision import Decision
from penstock.limits import Limit


class Algorithm:
    """One limit's rule. Made once for each limit and store; holds no key's state."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.words = 1
        self.most_words = 1
        self.length_at = -1
        self.most = limit.amount
        self.wall = False
        self.valid_from = 0
        self.valid_until = FOREVER

    def start(self, now: int) -> None:
        """Called once, with the time at which the limit comes into force."""

    def refresh(self, now: int) -> None:
        """Called before `decide` when ``now`` lies outside ``valid_from .. valid_until``."""

    def decide(
        self, state: Words, cost: int, now: int, extra: int, take: int, out: Decision
    ) -> int:
        """Fill ``out`` for a request of ``cost`` at ``now``, and book it if it is to ``take``.

        ``take`` is LOOK, which writes nothing, HIT, or ATTEMPT, which is a hit whose
        refusal is no violation. ``extra`` units are allowed beyond the limit (a soft
        limit's overrun). ``cost`` is at most ``most + 1``.
        Answers ALLOWED, REFUSED, or NO_ROOM when the row must grow before this
        can be booked; then nothing that matters was written either.
        """
        return REFUSED

    def charge(self, state: Words, cost: int, now: int) -> int:
        """Book ``cost`` whether it fits or not: it has been used already."""
        return REFUSED

    def refund(self, state: Words, cost: int, now: int, mark: int, kept: int) -> None:
        """Give ``cost`` back, never beyond full.

        With the ``mark`` of the decision that took it, and the units of it that stay
        ``kept``, give back only what the rest still weighs: some of it may have come
        back by itself since.
        """

    def reserve(self, state: Words, cost: int, now: int, patience: int, out: Decision) -> int:
        """Book ``cost`` now, for the first moment at which it fits: ``out._delay`` from now.

        Refused, and nothing booked, if that is further away than ``patience`` (-1: any) or than
        the algorithm reaches. Only buckets can: see `penstock.reservation.check_bucket`.
        ``cost`` is at most ``most``.
        """
        return REFUSED

    def cancel(self, state: Words, cost: int, now: int, mark: int, kept: int) -> None:
        """`refund` of what was reserved, unless others were promised their times because of it."""

    def sound(self, state: Words) -> bool:
        """Whether a row from a file can be ours: its indexes stay in it, its sums make sense.

        Whatever else such a row holds, no method may leave it or run on for ever.
        """
        return True

    def extent(self, state: Words) -> int:
        """How many of a row's words, from the first, are in use or may be written next."""
        return self.most_words

    def carry(self, old: Words, new: Words) -> None:
        """Move a row that has grown: ``new`` is zero but for its length."""
