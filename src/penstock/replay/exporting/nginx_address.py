"""nginx: the network of an address.

nginx knows the client as text, with IPv6 as ``2001:db8::1``. What ``::`` stands for depends on how
many groups are on both sides of it, so there is an expression for each case. All of them write
zeros out, so that every address of a network gives one text.
"""

from __future__ import annotations

from penstock.errors import RulesError

_GROUP = "[0-9a-f]+"


def variable(group: tuple[int, int]) -> str:
    """The variable with the network of the client."""
    ipv4, ipv6 = group
    if (ipv4, ipv6) == (32, 128):
        return "$binary_remote_addr"
    if ipv4 % 8 or ipv6 % 16:
        raise RulesError(
            f"nginx cuts addresses at points and colons only, not at /{ipv4} and /{ipv6}: write"
            " group: {ipv4: 24, ipv6: 64}, for example"
        )
    return f"$penstock_address_{ipv4}_{ipv6}"


def address_map(group: tuple[int, int]) -> list[str]:
    """The map that sets this variable."""
    try:
        name = variable(group)
    except RulesError:
        return []  # the items say so themselves
    if name == "$binary_remote_addr":
        return []
    ipv4, ipv6 = group
    octets = rf"(?<penstock_a>{_several(ipv4 // 8, '[0-9]+', chr(92) + '.')})"
    cases = [(rf"^(?:::ffff:)?{octets}{_end(ipv4, 32)}", "$penstock_a")]
    cases += ipv6_cases(ipv6 // 16)
    if ipv4 == 32:
        cases[0] = (rf"^::ffff:{octets}\z", "$penstock_a")  # others are as they should be
    return [
        f"# The client's network: /{ipv4} of IPv4, /{ipv6} of IPv6.",
        f"map $remote_addr {name} {{",
        "    default $remote_addr;",
        *(f'    "~{regex}" "{text}";' for regex, text in cases),
        "}",
    ]


def _end(length: int, most: int) -> str:
    return r"\z" if length == most else r"\."


def ipv6_cases(wanted: int) -> list[tuple[str, str]]:
    """Expressions, and the first ``wanted`` groups of an address that matches as text."""
    out = []
    for before in range(wanted):
        head = rf"(?<penstock_a>{_several(before)})" if before else ""
        # So many groups after "::" are all beyond what is wanted.
        beyond = rf"(?:{_GROUP}(?::{_GROUP}){{0,{7 - wanted}}})?" if wanted < 8 else ""
        zeros = ["0"] * (wanted - before)
        out.append((rf"^{head}::{beyond}\z", _text(before, zeros, False)))
        for after in range(9 - wanted, 8 - before):
            taken = wanted - 8 + after
            tail = rf"(?<penstock_b>{_several(taken)})" + rf":{_GROUP}" * (after - taken)
            zeros = ["0"] * (8 - before - after)
            out.append((rf"^{head}::{tail}\z", _text(before, zeros, True)))
    end = ":" if wanted < 8 else r"\z"
    return [*out, (rf"^(?<penstock_a>{_several(wanted)}){end}", "$penstock_a")]


def _text(before: int, zeros: list[str], after: bool) -> str:
    head = ["$penstock_a"] if before else []
    return ":".join([*head, *zeros, *(["$penstock_b"] if after else [])])


def _several(count: int, group: str = _GROUP, between: str = ":") -> str:
    return between.join([group] * count)
