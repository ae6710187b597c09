"""Matching once more, slow and obvious, from the sentences that define it.

It shares no code with `penstock.rules.matching.match`: it goes through lists instead of tables, and
its networks are those of `ipaddress`. Tests ask both.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.rules.lists import ValueList
from penstock.rules.model import Domain, Rule, Step, id_part

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Found:
    """What a match says, for comparing."""

    rule: Rule
    key: str
    values: tuple[str, ...]
    allowed: bool
    denied: bool


def walk(domain: Domain, pairs: Pairs) -> Found | None:
    path: list[Step] = []
    level = domain.steps
    for key, value in pairs:
        step = choose(level, key, value)
        if step is None:
            return astray(domain, path, pairs)  # "no backtracking"
        path.append(step)
        level = step.children
    # "The limit applies only at exactly the request's depth; parents are not inherited."
    if not path or path[-1].rule is None:
        return astray(domain, path, pairs)
    return found(domain, path, pairs, path[-1].rule)


def astray(domain: Domain, path: list[Step], pairs: Pairs) -> Found | None:
    """ "A denied one is refused", also where no rule applies: by the step that has the list."""
    for depth, (step, (_, value)) in enumerate(zip(path, pairs, strict=False), 1):
        if is_on(step.deny, value):
            refusal = Rule(name_of(domain, path[:depth]), step.place, closed=True)
            return found(domain, path[:depth], pairs[:depth], step.rule or refusal)
    return None


def name_of(domain: Domain, path: list[Step]) -> str:
    """ "A rule is known by its path: `api/plan=free/user`." """
    name = id_part(domain.name)
    for step in path:
        name += f"/{id_part(step.key)}"
        name += "" if step.value is None else f"={id_part(step.value)}"
    return name


def found(domain: Domain, path: list[Step], pairs: Pairs, rule: Rule) -> Found:
    taken = list(zip(path, pairs, strict=True))
    counted = [(key, effective(step, value)) for step, (key, value) in taken]
    denied = any(is_on(step.deny, value) for step, (_, value) in taken)
    allowed = any(is_on(step.allow, value) for step, (_, value) in taken)
    return Found(
        rule,
        key_of(domain.name, counted),
        tuple(value for _, value in counted),
        allowed and not denied,  # "deny goes before"
        denied,
    )


def choose(level: Sequence[Step], key: str, value: str) -> Step | None:
    """ "Per level: exact `key_value`, then wildcards in declaration order, then bare `key`." """
    same_key = [step for step in level if step.key == key]
    exact = [step for step in same_key if step.value == value]
    wildcards = [
        step
        for step in same_key
        if step.value is not None and "*" in step.value and glob(step.value, value)
    ]
    bare = [step for step in same_key if step.value is None]
    return next(iter(exact + wildcards + bare), None)


def glob(pattern: str, value: str) -> bool:
    """ "`*` anywhere, zero or more characters"."""
    if not pattern:
        return not value
    if pattern[0] == "*":
        return any(glob(pattern[1:], value[start:]) for start in range(len(value) + 1))
    return value[:1] == pattern[0] and glob(pattern[1:], value[1:])


def effective(step: Step, value: str) -> str:
    if step.share_threshold:
        assert step.value is not None
        assert "*" in step.value
        return step.value  # "the pattern replaces the value in the counter's key"
    if step.group is not None and (address := as_address(value)) is not None:
        length = step.group[0] if isinstance(address, ipaddress.IPv4Address) else step.group[1]
        return str(ipaddress.ip_network((address.packed, length), strict=False))
    return value


def as_address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_on(entries: ValueList | None, value: str) -> bool:
    return entries is not None and any(is_entry(entry, value) for entry in entries.entries)


def is_entry(entry: str, value: str) -> bool:
    address, slash, length = entry.rpartition("/")
    if slash and length.isdigit() and as_address(address) is not None:
        here = as_address(value)
        network = ipaddress.ip_network(entry, strict=False)
        return here is not None and here.version == network.version and here in network
    return entry == value


def key_of(domain: str, pairs: Pairs) -> str:
    return "|".join([escape(domain), *(f"{escape(key)}={escape(value)}" for key, value in pairs)])


def escape(text: str) -> str:
    out = ""
    for letter in text:
        number = ord(letter)
        control = number < 0x20 or 0x7F <= number < 0xA0
        out += f"%{number:02X}" if control or letter in "|=%" else letter
    return out
