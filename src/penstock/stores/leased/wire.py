"""One call of the bank's script: the arguments, and the replies."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple

from penstock import keys
from penstock.durations import MICROSECOND
from penstock.stores.leased.law import Terms
from penstock.stores.leased.messages import Message, Reply, packed_terms
from penstock.stores.redis.script import Policy, script

# What a policy whose calendar does not cover the present is answered with.
REFRESH = b"refresh"


class Parcel(NamedTuple):
    """A message, and where it goes."""

    key: bytes  # of the counter
    leases: bytes  # the key of its leases
    policy: Policy
    terms: Terms
    message: Message


def bank_script(test_clock: bool = False) -> str:
    """The text of the bank's script."""
    folder = resources.files("penstock.stores.leased")
    return script(test_clock, driver=folder.joinpath("bank.lua").read_text("utf-8"))


def parcel(prefix: str, key: bytes, policy: Policy, terms: Terms, message: Message) -> Parcel:
    return Parcel(key, keys.lease_key(prefix, key), policy, terms, message)


def encode(parcels: Sequence[Parcel]) -> list[Any]:
    """What EVALSHA is given behind the script's name."""
    places: dict[tuple[int, int], int] = {}
    limits: list[bytes] = []
    arguments: list[Any] = [2 * len(parcels)]
    messages: list[bytes] = []
    for key, leases, policy, terms, message in parcels:
        arguments += (key, leases)
        limit = id(policy), id(terms)  # both outlive this call, and comparing them takes time
        place = places.get(limit)
        if place is None:
            place = places[limit] = len(limits) + 2
            limits += (policy.text, packed_terms(terms))
        messages.append(message.packed(place))
    return [*arguments, len(limits) + 2, *limits, *messages]


def decode(reply: list[Any]) -> list[Any]:
    """A `Reply` for each message; REFRESH or an exception where there is none."""
    now = reply[0] * MICROSECOND
    return [
        Reply.unpacked(answer, now) if isinstance(answer, bytes) and answer != REFRESH else answer
        for answer in reply[1:]
    ]
