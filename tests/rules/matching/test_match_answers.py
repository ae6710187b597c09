"""What a match says beside the rule: the counter's key, and what lists decided."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("yaml")

from penstock.rules.lists import ValueList
from penstock.rules.matching.match import Matcher
from penstock.rules.model import Domain, Rule, Step
from penstock.rules.problems import Place
from penstock.rules.reading.parse import load_mapping
from rules.matching.match_cases import matched, matcher, pairs

PLACE = Place("rules.yaml", 1, 1)

KEYS = matcher("""
    - key: plan
      limits: 1/s
      descriptors:
        - { key: user, value: "a|b=c%", limits: 1/s }
        - { key: user, limits: 1/s }
    - { key: "k|=%\\n", limits: 1/s }
    - { key: net, group: subnet, limits: 1/s }
    - { key: wide, group: { ipv4: 8, ipv6: 32 }, limits: 1/s }
    - { key: whole, group: { ipv4: 32, ipv6: 128 }, limits: 1/s }
    - { key: home, value: 192.0.2.7, group: subnet, limits: 1/s }
    - key: file
      value: "/files/*"
      share_threshold: true
      limits: 1/s
      descriptors:
        - { key: user, limits: 1/s }
    - { key: file, value: "/*", limits: 1/s }
    - { key: both, value: "10.*", share_threshold: true, group: subnet, limits: 1/s }
""")
MADE = [
    ("the domain and every pair", ["plan=free", "user=42"], "api|plan=free|user=42"),
    ("a bar in a value", ["plan=a|b"], "api|plan=a%7Cb"),
    ("no bar: two pairs are two", ["plan=a", "user=b"], "api|plan=a|user=b"),
    ("pairs that would look like one", ["plan=a|user=b"], "api|plan=a%7Cuser%3Db"),
    ("an equals sign in a value", ["plan=a=b"], "api|plan=a%3Db"),
    ("a percent sign in a value", ["plan=a%7Cb"], "api|plan=a%257Cb"),
    ("control characters", ["plan=a\x00\n\x1f\x7f\x85b"], "api|plan=a%00%0A%1F%7F%85b"),
    ("other characters stay", ["plan=/x y:{é}日😀'\"\\"], "api|plan=/x y:{é}日😀'\"\\"),
    ("an empty value", ["plan="], "api|plan="),
    ("a value of the file is escaped, too", ["plan=x", "user=a|b=c%"],
     "api|plan=x|user=a%7Cb%3Dc%25"),
    ("a network of IPv4", ["net=192.0.2.7"], "api|net=192.0.2.0/24"),
    ("a network of IPv6", ["net=2001:DB8:0:0:1::7"], "api|net=2001:db8::/64"),
    ("IPv4 in IPv6 clothes", ["net=::ffff:192.0.2.9"], "api|net=192.0.2.0/24"),
    ("no address stands for itself", ["net=localhost"], "api|net=localhost"),
    ("no address: leading zeros", ["net=192.0.2.007"], "api|net=192.0.2.007"),
    ("other lengths, IPv4", ["wide=10.1.2.3"], "api|wide=10.0.0.0/8"),
    ("other lengths, IPv6", ["wide=2001:db8:1::1"], "api|wide=2001:db8::/32"),
    ("whole addresses", ["whole=::1"], "api|whole=::1/128"),
    ("the network of an exact value", ["home=192.0.2.7"], "api|home=192.0.2.0/24"),
    ("a shared pattern", ["file=/files/a.pdf"], "api|file=/files/*"),
    ("a shared pattern, and a pair further on", ["file=/files/a.pdf", "user=7"],
     "api|file=/files/*|user=7"),
    ("a pattern that is not shared", ["file=/other/a.pdf"], "api|file=/other/a.pdf"),
    ("a value that is the pattern", ["file=/files/*"], "api|file=/files/*"),
    ("a shared pattern goes before a network", ["both=10.1.2.3"], "api|both=10.*"),
]  # fmt: skip


@pytest.mark.parametrize(("descriptor", "key"), [c[1:] for c in MADE], ids=[c[0] for c in MADE])
def test_the_counters_key(descriptor: list[str], key: str) -> None:
    match = matched(KEYS, *descriptor)
    assert match.key == key
    assert len(match.values) == len(descriptor)


def test_values_are_those_of_the_key() -> None:
    assert matched(KEYS, "file=/files/a.pdf", "user=7").values == ("/files/*", "7")
    assert matched(KEYS, "net=192.0.2.7").values == ("192.0.2.0/24",)
    assert matched(KEYS, "home=192.0.2.7").values == ("192.0.2.0/24",)
    assert matched(KEYS, "plan=a|b").values == ("a|b",), "escaped only in the key"


def test_a_key_with_special_characters() -> None:
    match = KEYS.match([("k|=%\n", "x")])
    assert match is not None
    assert match.key == "api|k%7C%3D%25%0A=x"


def test_domains_do_not_share_keys() -> None:
    steps = (Step("a", None, PLACE, Rule("r", PLACE)),)
    matches = [Matcher(Domain(name, PLACE, steps)).match([("a", "1")]) for name in ("x", "x|a=1")]
    assert [match.key for match in matches if match] == ["x|a=1", "x%7Ca%3D1|a=1"]


LISTED = matcher(
    """
    - key: ip
      allow: [10.0.0.0/8, trusted]
      deny: [10.6.6.0/24, "6.6.6.6", "2001:db8::/32"]
      limits: 1/s
      descriptors:
        - key: user
          allow: [admin]
          deny: [mallory]
          limits: 1/s
          descriptors:
            - { key: path, value: /login, limits: 1/s }
    - { key: gate, deny: [closed], allow: [open] }
    - { key: home, value: 192.0.2.7, deny: [192.0.2.0/24], limits: 1/s }
    - { key: net, group: subnet, deny: [192.0.2.7], limits: 1/s }
    """,
    """
    allow: { user: [root], ip: [127.0.0.0/8] }
    deny: { user: [nobody], ip: [127.6.0.0/16] }
    """,
)
ON_LISTS = [
    ("on no list", ["ip=192.0.2.1"], ""),
    ("allowed: in a network", ["ip=10.1.2.3"], "allowed"),
    ("allowed: a text", ["ip=trusted"], "allowed"),
    ("allowed: IPv4 in IPv6 clothes", ["ip=::ffff:10.1.2.3"], "allowed"),
    ("denied: a text", ["ip=6.6.6.6"], "denied"),
    ("denied: in a network of IPv6", ["ip=2001:db8:1::1"], "denied"),
    ("deny goes before allow", ["ip=10.6.6.6"], "denied"),
    ("allowed further up", ["ip=10.1.2.3", "user=ann"], "allowed"),
    ("allowed further down", ["ip=192.0.2.1", "user=admin"], "allowed"),
    ("denied further up", ["ip=6.6.6.6", "user=ann"], "denied"),
    ("denied further down", ["ip=192.0.2.1", "user=mallory"], "denied"),
    ("denied above goes before allowed below", ["ip=6.6.6.6", "user=admin"], "denied"),
    ("denied below goes before allowed above", ["ip=10.1.2.3", "user=mallory"], "denied"),
    ("two steps further down", ["ip=6.6.6.6", "user=ann", "path=/login"], "denied"),
    ("where nothing varies", ["home=192.0.2.7"], "denied"),
    ("a list is asked for the value, not for its network", ["net=192.0.2.7"], "denied"),
    ("a neighbour in the network is not on the list", ["net=192.0.2.8"], ""),
]


@pytest.mark.parametrize(
    ("descriptor", "listed"), [c[1:] for c in ON_LISTS], ids=[c[0] for c in ON_LISTS]
)
def test_lists_of_steps(descriptor: list[str], listed: str) -> None:
    match = matched(LISTED, *descriptor)
    assert (match.allowed, match.denied) == (listed == "allowed", listed == "denied")
    assert match.step.rule is match.rule


@pytest.mark.parametrize(
    ("descriptor", "rule"),
    [
        (["ip=6.6.6.6", "nothing=here"], "api/ip"),
        (["ip=6.6.6.6", "user=ann", "path=/other"], "api/ip"),
        (["ip=192.0.2.1", "user=mallory", "path=/other"], "api/ip/user"),
        (["gate=closed"], "api/gate"),
    ],
    ids=" ".join,
)
def test_who_is_denied_is_refused_where_no_rule_applies(descriptor: list[str], rule: str) -> None:
    match = matched(LISTED, *descriptor)
    assert match.denied
    assert match.rule.id == rule
    assert len(match.steps) == len(match.values) == rule.count("/")


def test_a_step_that_only_denies_stands_for_a_closed_rule() -> None:
    match = matched(LISTED, "gate=closed")
    assert match.step.rule is None
    assert match.rule.closed
    assert match.rule.place == match.step.place


@pytest.mark.parametrize(
    "text", ["plain", "a/b=c%", "line\nend", "\x7f\x85\u2028", "日本", "a|b", "a.b-c d", "\ud800"]
)
def test_it_is_named_as_the_parser_names_rules(text: str) -> None:
    named = {"key": text, "value": text, "limits": "1/s"}
    (parsed,) = load_mapping({"domain": text, "descriptors": [named]}).steps
    denying = replace(parsed, rule=None, deny=ValueList([text]))
    match = Matcher(Domain(text, PLACE, (denying,))).match([(text, text)])
    assert match is not None
    assert parsed.rule is not None
    assert match.rule.id == parsed.rule.id


def test_an_allow_list_is_no_rule() -> None:
    assert LISTED.match(pairs("gate=open")) is None
    assert LISTED.match(pairs("ip=10.1.2.3", "nothing=here")) is None


def test_lists_of_the_domain() -> None:
    assert LISTED.denies(pairs("x=1", "user=nobody"))
    assert not LISTED.denies(pairs("user=root"))
    assert not LISTED.denies(pairs("x=nobody"))
    assert LISTED.allows(pairs("x=1", "user=root"))
    assert not LISTED.allows(pairs("user=nobody"))
    both = pairs("ip=127.6.0.1")
    assert (LISTED.denies(both), LISTED.allows(both)) == (True, True), (
        "the caller asks denies first"
    )
    assert not KEYS.denies(both)
    assert not KEYS.allows(both)
