"""What an agent, its site and its home tell each other, and the same as bytes for the scripts."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.durations import MILLISECOND
from penstock.stores.redis.script import Rule
from penstock.stores.regions.account import Reply, Request
from penstock.stores.regions.law import Terms, Times
from penstock.stores.regions.roster import Joined
from penstock.stores.regions.row import Applied, Share

_TERMS = struct.Struct("<3d")
_HELLO, _ANSWER = struct.Struct("<7d"), struct.Struct("<5d")
_REQUEST, _REPLY = struct.Struct("<10d"), struct.Struct("<8d")
_SHARE, _APPLIED = struct.Struct("<6d"), struct.Struct("<8d")


class Account(NamedTuple):
    """A key that a site asks the home about: its limit, and the end of its key in Redis."""

    terms: Terms
    place: bytes

    def packed(self) -> bytes:
        return _TERMS.pack(*self.terms) + self.place

    @classmethod
    def unpacked(cls, data: bytes) -> Account:
        rate, burst, span = map(int, _TERMS.unpack_from(data))
        return cls(Terms(rate, burst, span), data[_TERMS.size :])


# To the site ----------------------------------------------------------------------------


class Tick(NamedTuple):
    """An instance passes on demand, in units, and stands for election."""

    name: str
    demand: Mapping[bytes, int]


class SiteState(NamedTuple):
    """What all instances of a site know. Times are the site's, in nanoseconds since 1970."""

    now: int
    is_agent: bool
    fence: int
    site: str
    granted: int | None  # the floor; None if the home has not granted one yet
    told: int  # how much is reserved for all regions
    heard: int  # when the home last answered; 0 if it never did
    problem: str


class Take(NamedTuple):
    """The agent takes the demand of all instances."""

    fence: int


class Note(NamedTuple):
    """The agent writes into the site's state."""

    fence: int
    fields: Mapping[str, int | str]


class Apply(NamedTuple):
    """Shares for rows of the site; None to look at one. ``floor`` is the one that is granted."""

    floor: int
    shares: Sequence[tuple[Account, Share | None]]


class Looks(NamedTuple):
    now: int
    rows: Sequence[Applied | None]  # None where there is no row of ours


# To the home ----------------------------------------------------------------------------


class Ask(NamedTuple):
    """The agent reports for its region."""

    region: str
    site: str
    fence: int
    floor: int
    granted: int
    told: int  # how much is reserved for all regions, as the home last said
    requests: Sequence[tuple[Account, Request]]


class Answer(NamedTuple):
    now: int  # the home's time in milliseconds
    joined: Joined
    opens: int
    replies: Sequence[Reply | None]


# As bytes -------------------------------------------------------------------------------


def pack_hello(ask: Ask, times: Times) -> bytes:
    numbers = _HELLO.pack(
        times.lease, times.slack, times.memory, ask.fence, ask.floor, ask.granted, ask.told
    )
    return numbers + ask.region.encode() + b"\0" + ask.site.encode() + b"\0"


def pack_request(account: Account, request: Request) -> bytes:
    return _REQUEST.pack(*account.terms, *request)


def unpack_answer(data: bytes, replies: Sequence[bytes | Exception]) -> Answer:
    now, status, granted, reserved, opens = map(int, _ANSWER.unpack(data))
    return Answer(
        now, Joined(status, granted, reserved), opens,
        [Reply(*map(int, _REPLY.unpack(each))) if isinstance(each, bytes) else None
         for each in replies],
    )  # fmt: skip


def rule_of(terms: Terms, floor: int) -> Rule:
    """The policy of a row: see regional_bucket.lua."""
    rate, burst = terms.part(floor)
    span = terms.span * MILLISECOND
    return Rule(
        "regional_bucket",
        {
            "span": span,
            "floor_rate": rate,
            "floor_burst": burst,
            "rate": terms.rate,
            "burst": terms.burst,
        },
    )


def pack_share(place: int, share: Share | None) -> bytes:
    if share is None:
        return _SHARE.pack(place, 0, 0, 0, 0, 0)
    burst, rate, paid, finish, number = share
    return _SHARE.pack(place, burst, rate, paid, finish // 1000, number)


def unpack_applied(data: bytes | Exception) -> Applied | None:
    return Applied(*map(int, _APPLIED.unpack(data))) if isinstance(data, bytes) else None
