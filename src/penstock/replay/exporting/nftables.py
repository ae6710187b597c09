"""nftables: ``limit`` for each address, before any server sees the connection.

A bucket in whole packets a second, minute, hour, day or week. An element of a set has its own
bucket. ``update``, not ``add``: ``add`` lets the element expire while its address is busy, and the
address then begins with a full bucket.
"""

from __future__ import annotations

from fractions import Fraction
from ipaddress import IPv4Address, IPv6Address

from penstock.errors import RulesError
from penstock.limits import Limit
from penstock.replay.exporting.escaping import address_of, comment
from penstock.replay.exporting.items import (
    Item,
    Part,
    Piece,
    merged,
)
from penstock.replay.exporting.numbers import (
    SECOND,
    Choices,
    Job,
    as_bucket,
    check,
    differ,
    notes,
    rate,
    round_rate,
    share_note,
    together_note,
)
from penstock.replay.exporting.sources import ADDRESS

NAME, FILE = "nftables", "penstock.nft"
LOAD = (
    f"Check it: nft -c -f {FILE}",
    f"Load it: nft -f {FILE}, which replaces what an earlier one has loaded",
    "Look at it: nft list table inet penstock",
    "",
    "- It counts new TCP connections, not requests: a connection may carry many requests.",
    "- Refused clients get a reset. In a flood, write drop in place of reject.",
    "- Behind a proxy or NAT, all clients have one address.",
    "- A full set limits nobody new: size is the room for keys.",
)
_UNITS = {1: "second", 60: "minute", 3600: "hour", 86_400: "day", 604_800: "week"}
_MOST = 2**32 - 1
_LEAST_TIMEOUT = 60
_LONGEST_TIMEOUT = 30 * 86_400


def write(item: Item, job: Job) -> Piece:
    """Sections: sets, and the rules of the chain."""
    choices = job.choices
    part = _only_address(item)
    if item.limit.algorithm == "leaky_bucket":
        raise RulesError("nftables delays nothing: write algorithm: token_bucket")
    verdict = "counter" if item.rule.shadow else "counter reject with tcp reset"
    rules: list[str] = []
    sets: list[str] = []
    if item.closed:
        piece = Piece(item, item.limit)
        rules = [f"{match}{verdict}" for _, match in _versions(part)]
        piece.sections = ([], _chain(piece, rules, choices))
        return piece
    if item.concurrency:
        piece = Piece(item, item.limit)
        share_note(piece)
        differ(piece, "connections instead of requests; those that are half closed count, too")
        limit, timeout = f"ct count over {item.limit.amount}", 0
    else:
        bucket, piece = as_bucket(item, choices)
        together_note(piece, job.meeting(item))
        number, unit = _rate(bucket)
        round_rate(piece, rate(bucket), Fraction(number, unit))
        if bucket.burst > _MOST:
            raise RulesError(f"{bucket}: nftables counts to {_MOST:,} only")
        limit = f"limit rate over {number}/{_UNITS[unit]} burst {bucket.burst} packets"
        width = unit * SECOND // number
        piece.means = Limit(1, f"{width}ns", burst=bucket.burst)
        timeout = max(_LEAST_TIMEOUT, -(-bucket.burst * width // SECOND) + 1)
        if timeout > _LONGEST_TIMEOUT:
            raise RulesError(
                f"{bucket}: its keys would have to be kept for {timeout // 86_400} days"
            )
    for version, match in _versions(part):
        if part.value is not None:
            rules.append(f"{match}{limit} {verdict}")
            continue
        family = "ip" if version == 4 else "ip6"
        name = f"{item.name}_ipv{version}"
        kept = f"flags dynamic,timeout; timeout {timeout}s;" if timeout else "flags dynamic;"
        sets.append(f"set {name} {{ type ipv{version}_addr; size {choices.room(item)}; {kept} }}")
        verb = "update" if timeout else "add"
        address = f"{family} saddr{_mask(part, version)}"
        rules.append(f"{match}{verb} @{name} {{ {address} {limit} }} {verdict}")
    check(piece, choices)
    piece.sections = ([*notes(piece)[:1], *sets] if sets else [], _chain(piece, rules, choices))
    return piece


def _chain(piece: Piece, rules: list[str], choices: Choices) -> list[str]:
    ports = ", ".join(str(port) for port in choices.ports)
    return [*notes(piece), *(f"tcp dport {{ {ports} }} ct state new {rule}" for rule in rules)]


def whole(pieces: list[Piece], choices: Choices) -> list[str]:
    sets, rules = merged(pieces)
    return [
        "table inet penstock",
        "delete table inet penstock",
        "table inet penstock {",
        *(f"    {line}" for line in sets),
        "    chain input {",
        "        type filter hook input priority filter - 10; policy accept;",
        *(f"        {line}" for line in rules),
        "    }",
        "}",
    ]


def _only_address(item: Item) -> Part:
    for part in item.parts:
        if part.source.kind != ADDRESS:
            raise RulesError(
                f"nftables sees packets: it knows remote_address, but not {comment(part.key)!r} of"
                " a request; export this rule to a proxy"
            )
    if len(item.parts) != 1:
        raise RulesError("nftables counts by one address")
    return item.parts[0]


def _versions(part: Part) -> list[tuple[int, str]]:
    """Each version of addresses that a rule is for, with the match that it takes."""
    if part.value is not None:
        address = address_of(part.value)
        family = "ip" if address.version == 4 else "ip6"
        return [(address.version, f"{family} saddr {address} ")]
    out = []
    for version, family in ((4, "ip"), (6, "ip6")):
        others = [str(each) for each in map(address_of, part.others) if each.version == version]
        out.append((version, f"{family} saddr != {{ {', '.join(others)} }} " if others else ""))
    return out


def _mask(part: Part, version: int) -> str:
    lengths = part.group or (32, 128)
    length, bits = (lengths[0], 32) if version == 4 else (lengths[1], 128)
    if length == bits:
        return ""
    number = ((1 << length) - 1) << (bits - length)
    return f" and {IPv4Address(number) if version == 4 else IPv6Address(number)}"


def _rate(bucket: Limit) -> tuple[int, int]:
    """A whole number, and the seconds of its unit, as near below the limit's rate as can be."""
    wanted = rate(bucket)
    best = max(
        ((min(_MOST, int(wanted * unit)), unit) for unit in _UNITS),
        key=lambda each: (Fraction(each[0], each[1]), -each[1]),
    )
    if not best[0]:
        raise RulesError(f"{bucket}: nftables counts nothing slower than 1/week")
    return best
