"""What an instance and the bank tell each other about one key.

The counts of a message only grow while a lease lives, so messages may be lost, repeated or
overtake each other. In Redis, both are packed as doubles: see `bank.lua`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.durations import MICROSECOND
from penstock.stores.leased.law import Terms

_TERMS = struct.Struct("<6d")
_MESSAGE = struct.Struct("<6d")
_REPLY = struct.Struct("<8d")


class Message(NamedTuple):
    """From a holder: what it did with what it got, and what it wants."""

    holder: bytes
    granted: int  # all that it knows to have been granted
    spent: int
    returned: int  # given up unspent
    demand: int  # units a second, refused ones included
    want: int

    def packed(self, place: int) -> bytes:
        """For the script; ``place`` is where its policy is."""
        holder, *numbers = self
        return _MESSAGE.pack(place, *numbers) + holder


class Reply(NamedTuple):
    """From the bank."""

    granted: int  # in all, this time included
    life: int  # nanoseconds from the call on for which the bank vouches for what is unspent
    wait: int  # 0, or the bank is empty: ask again after so many nanoseconds
    room: int  # what is left there, in nanoseconds of refill or, of a window, in units
    out: int  # unspent units of all holders, as far as the bank knows
    holders: int
    mark: int  # where in the bank's row a unit of this lease is booked, for refunds
    end: int  # of a window, in nanoseconds from now; 0 for a bucket

    @classmethod
    def unpacked(cls, numbers: bytes, now: int) -> Reply:
        """From the answer of `bank.lua` at ``now``, the server's time in nanoseconds."""
        granted, life, wait, room, out, holders, mark, end = map(int, _REPLY.unpack(numbers))
        return cls(
            granted, life * MICROSECOND, wait * MICROSECOND, room, out, holders, now + mark, end
        )


def packed_terms(terms: Terms) -> bytes:
    return _TERMS.pack(
        terms.burst, terms.horizon, terms.cover, terms.ttl, terms.refills, terms.most
    )
