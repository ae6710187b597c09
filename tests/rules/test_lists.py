"""Lists of values: texts and networks; and the network that an address is counted as."""

from __future__ import annotations

import ipaddress
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RulesError
from penstock.rules.lists import ValueList, as_network, network_of

HITS = [
    ("a text", ["admin"], "admin"),
    ("the empty text", [""], ""),
    ("a path with slashes is a text", ["/api/24"], "/api/24"),
    ("a word and a length is a text", ["team/24"], "team/24"),
    ("an address is a text", ["10.0.0.1"], "10.0.0.1"),
    ("IPv4: the first address", ["10.0.0.0/8"], "10.0.0.0"),
    ("IPv4: the last address", ["10.0.0.0/8"], "10.255.255.255"),
    ("IPv4: one address", ["192.0.2.1/32"], "192.0.2.1"),
    ("IPv4: all", ["0.0.0.0/0"], "203.0.113.9"),
    ("IPv4: bits of the host are set", ["192.0.2.77/24"], "192.0.2.1"),
    ("IPv6: in a network", ["2001:db8::/32"], "2001:db8:ffff::1"),
    ("IPv6: another spelling", ["2001:db8::/32"], "2001:0DB8:0:0:0:0:0:1"),
    ("IPv6: one address", ["::1/128"], "::1"),
    ("IPv6: bits of the host are set", ["2001:db8::77/64"], "2001:db8::1"),
    ("IPv6: with a zone", ["fe80::/10"], "fe80::1%eth0"),
    ("IPv4 in IPv6 clothes", ["10.0.0.0/8"], "::ffff:10.1.2.3"),
    ("IPv4 in IPv6 clothes, as hexadecimal", ["10.0.0.0/8"], "::ffff:a01:203"),
    ("the second of two lengths", ["10.0.0.0/8", "192.0.2.0/24"], "192.0.2.9"),
    ("texts beside networks", ["10.0.0.0/8", "admin"], "admin"),
]
MISSES = [
    ("no entries", [], "admin"),
    ("another text", ["admin"], "Admin"),
    ("part of a text", ["admin"], "adm"),
    ("IPv4: before the first", ["10.0.0.0/8"], "9.255.255.255"),
    ("IPv4: after the last", ["10.0.0.0/8"], "11.0.0.0"),
    ("IPv6: beside the network", ["2001:db8::/32"], "2001:db9::1"),
    ("IPv4 is in no network of IPv6", ["::/0"], "10.0.0.1"),
    ("IPv6 is in no network of IPv4", ["0.0.0.0/0"], "2001:db8::1"),
    ("IPv6 with the same number as IPv4", ["10.0.0.0/8"], "::a00:1"),
    ("the text of a network is no address", ["10.0.0.0/8"], "10.0.0.0/8"),
    ("no address: too few parts", ["0.0.0.0/0"], "10.1"),
    ("no address: leading zeros", ["10.0.0.0/8"], "010.0.0.1"),
    ("no address: a space", ["10.0.0.0/8"], " 10.0.0.1"),
    ("no address: a port", ["10.0.0.0/8"], "10.0.0.1:80"),
    ("no address: a number", ["0.0.0.0/0"], "167772161"),
    ("no address: the empty text", ["0.0.0.0/0", "::/0"], ""),
    ("no address: other digits", ["0.0.0.0/0"], "\u0661.\u0661.\u0661.\u0661"),
]


@pytest.mark.parametrize(("entries", "value"), [c[1:] for c in HITS], ids=[c[0] for c in HITS])
def test_on_the_list(entries: list[str], value: str) -> None:
    assert value in ValueList(entries)


@pytest.mark.parametrize(("entries", "value"), [c[1:] for c in MISSES], ids=[c[0] for c in MISSES])
def test_not_on_the_list(entries: list[str], value: str) -> None:
    assert value not in ValueList(entries)


def test_a_list_can_be_looked_at() -> None:
    values = ValueList(["b", "10.0.0.0/8", "b", "a"])
    assert values.entries == ("b", "10.0.0.0/8", "a"), "each once, in their order"
    assert len(values) == 3
    assert values
    assert not ValueList()
    assert repr(values) == "ValueList(['b', '10.0.0.0/8', 'a'])"


@pytest.mark.parametrize("wrong", ["10.0.0.0/33", "2001:db8::/129", "10.0.0.0/999"])
def test_a_length_that_no_network_has_is_an_error(wrong: str) -> None:
    with pytest.raises(RulesError, match="is no network"):
        ValueList([wrong])


@pytest.mark.parametrize(
    "text", ["", "/", "/24", "10.0.0.0/", "10.0.0.0/x", "10.0.0.0/-1", "10.0.0.0/٢٤", "a/b/24"]
)
def test_other_texts_are_no_networks(text: str) -> None:
    assert as_network(text) is None


def test_a_hundred_thousand_entries_cost_no_more_than_ten() -> None:
    few = ValueList([*(f"10.0.{n}.0/24" for n in range(5)), *(f"user{n}" for n in range(5))])
    many = ValueList(
        [
            *(f"10.{n >> 8}.{n & 255}.0/24" for n in range(50_000)),
            *(f"user{n}" for n in range(50_000)),
        ]
    )
    assert len(many) == 100_000
    for hit in ("10.195.79.255", "10.0.0.1", "user49999"):
        assert hit in many
    for miss in ("10.195.80.0", "11.0.0.1", "user50000"):
        assert miss not in many
    # A walk through the entries would take thousands of times as long, not twice.
    assert seconds(many) < 20 * seconds(few)


def seconds(values: ValueList) -> float:
    """The shortest of several times for some questions."""
    times = []
    for _ in range(20):
        started = time.thread_time()
        for value in ("11.0.0.1", "nobody", "2001:db8::1"):
            assert value not in values
        times.append(time.thread_time() - started)
    return min(times)


NETWORKS = [
    ("192.0.2.77", (24, 64), "192.0.2.0/24"),
    ("192.0.2.77", (32, 64), "192.0.2.77/32"),
    ("192.0.2.77", (0, 64), "0.0.0.0/0"),
    ("192.0.2.77", (25, 64), "192.0.2.0/25"),
    ("192.0.2.177", (25, 64), "192.0.2.128/25"),
    ("2001:db8:1:2:3:4:5:6", (24, 64), "2001:db8:1:2::/64"),
    ("2001:db8:1:2:3:4:5:6", (24, 56), "2001:db8:1::/56"),
    ("2001:db8:1:2:3:4:5:6", (24, 0), "::/0"),
    ("2001:DB8::1", (24, 128), "2001:db8::1/128"),
    ("::ffff:192.0.2.77", (24, 64), "192.0.2.0/24"),
    ("fe80::1%eth0", (24, 64), "fe80::/64"),
    ("localhost", (24, 64), "localhost"),
    ("", (24, 64), ""),
    ("192.0.2.0/24", (24, 64), "192.0.2.0/24"),
]


@pytest.mark.parametrize(("value", "lengths", "network"), NETWORKS)
def test_the_network_of_an_address(value: str, lengths: tuple[int, int], network: str) -> None:
    assert network_of(value, lengths) == network


@given(st.ip_addresses(), st.ip_addresses(), st.integers(0, 32), st.integers(0, 128))
def test_addresses_of_one_network_share_it_and_are_on_its_list(
    one: ipaddress.IPv4Address | ipaddress.IPv6Address,
    other: ipaddress.IPv4Address | ipaddress.IPv6Address,
    ipv4: int,
    ipv6: int,
) -> None:
    network = network_of(str(one), (ipv4, ipv6))
    assert str(one) in ValueList([network])
    together = network_of(str(other), (ipv4, ipv6)) == network
    assert (str(other) in ValueList([network])) == together


def test_an_address_is_itself_however_it_is_spelled() -> None:
    values = ValueList(["6.6.6.6", "2001:db8::1", "::ffff:10.0.0.0/104"])
    for same in ("6.6.6.6", "::ffff:6.6.6.6", "2001:DB8:0:0::1", "10.9.9.9", "::ffff:10.1.1.1"):
        assert same in values, same
    for other in ("6.6.6.7", "2001:db8::2", "11.0.0.1", "::ffff:11.0.0.1"):
        assert other not in values, other
