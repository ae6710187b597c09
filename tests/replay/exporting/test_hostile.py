"""Texts of rules are data: whatever they contain, they configure nothing."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RulesError
from penstock.replay import export
from penstock.rules.reading.loading import load_rules
from replay.exporting.driving import Asked, judge
from replay.exporting.servers import envoy, haproxy, nginx
from replay.exporting.test_exported_nginx import rules

TARGETS = ("nginx", "envoy", "nftables", "haproxy")
PIECES = [
    '"', "'", "\\", "\n", "\r", "\t", "{", "}", ";", "#", "$", "${uri}", "$uri", "%", "%[src]",
    " ", "evil on", "* ", "*", "~", "^", "(?i)", "\\z", ")", "|", "[", "]", "-i", "--", "@x", "!",
    ": ", "- ", "? ", "&a", "*a", "\0", "\x85", "\u2028", "é", "😀", "/", "a", "fe80::1%",
    "10.0.0.1", "\n}\nevil on;\n", "' }\nevil\n", '"]\nevil: x\n', "; flush ruleset", "=", ",",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)


def made_of(to: str, domain: str, key: str, value: str, name: str) -> str | None:
    """The configuration, or None if it is refused."""
    step: dict[str, Any] = {
        "key": key,
        "value": value,
        "limits": {"limit": "9/second", "name": name},
    }
    if not value:
        del step["value"]
    try:
        return export({"domain": domain, "descriptors": [step]}, to, approximate=True, keys=9).text
    except RulesError:
        return None


def directives(text: str) -> list[list[str]]:
    """What nginx's own lexer makes of a configuration: words, and braces as words."""
    token = re.compile(r'\s+|#[^\n]*|"((?:[^"\\]|\\.)*)"|([{};])|([^\s{};"\']+)', re.S)
    out: list[list[str]] = [[]]
    at = 0
    while at < len(text):
        match = token.match(text, at)
        assert match is not None, text[at:]
        at = match.end()
        if match[2]:
            out.append([])
        elif match[1] is not None or match[3]:
            out[-1].append(match[1] if match[1] is not None else match[3])
    return [words for words in out if words]


LIMIT_WORDS = {"limit_req_zone", "limit_req", "limit_req_status", "map", "default"}
HAPROXY = re.compile(
    r"(?:\s*#[ -~]*|backend penstock_\d+|defaults penstock|\s+mode http|"
    r"\s+stick-table type [a-z0-9 ]+ size \d+ expire \d+ms store gpc0,gpc0_rate\(\d+ms\)|"
    r"\s+http-request [a-z0-9-]+(?:\([a-z0-9_.]+\))?(?: deny_status 429)?"
    r"(?: [a-z0-9._(),%\[\]-]+)*?(?: table penstock_\d+)?(?: if(?: !?\{ (?:"
    r"[a-z0-9_.(),-]+ -m found|[a-z0-9_.(),-]+ ge \d+|src [0-9a-f.:]+|method -- [A-Za-z0-9/_-]+|"
    r"[a-z0-9_.(),-]+ -m str -- [A-Za-z0-9/_-]+|"
    r"[a-z0-9_.(),-]+ -m reg -- '(?:[A-Za-z0-9/_^-]|\\x[0-9a-f]{2}|\\z|\(\?s\)|\(\?>|\)|\.\*\??)*'"
    r") \})+)?)?"
)
NFT = re.compile(
    r"\s*(?:#[ -~]*|delete table inet penstock|table inet penstock(?: \{)?|chain input \{|\}|"
    r"set penstock_\d+_ipv[46] \{ type ipv[46]_addr; size \d+; flags dynamic,timeout;"
    r" timeout \d+s; \}|type filter hook input priority filter - 10; policy accept;|"
    r"tcp dport \{ 80, 443 \} ct state new (?:ip6? saddr [0-9a-f.:]+ )?"
    r"(?:update @penstock_\d+_ipv[46] \{ ip6? saddr(?: and [0-9a-f.:]+)? )?"
    r"limit rate over \d+/\w+ burst \d+ packets(?: \})? counter reject with tcp reset)?"
)


@given(
    st.sampled_from(TARGETS),
    TEXTS,
    st.one_of(
        *[st.sampled_from(["remote_address", "path", "method", "host", "header:x-a"])] * 4,
        TEXTS.map("header:{}".format), TEXTS.map("cookie:{}".format), TEXTS,
    ),
    st.one_of(st.just(""), TEXTS),
    TEXTS,
)  # fmt: skip
def test_no_text_becomes_configuration(
    to: str, domain: str, key: str, value: str, name: str
) -> None:
    text = made_of(to, domain, key, value, name)
    if text is None:
        return
    assert text.isascii()
    assert set(text) & set(map(chr, range(32))) == {"\n"}
    if to == "nginx":
        for words in directives(text):
            assert (
                words[0] in LIMIT_WORDS
                or words[0] == ""
                or words[0].startswith("~^")
                or (words[0].startswith("~(?s)^") or re.fullmatch(r"[A-Za-z0-9/_.:-]+", words[0]))
            ), words
    elif to == "envoy":
        (written,) = yaml.safe_load(text)
        assert set(written) == {"name", "typed_config"}
        config = written["typed_config"]
        assert len(config["rate_limits"]) == len(config["descriptors"]) == 1
        for action in config["rate_limits"][0]["actions"]:
            for match in action.get("header_value_match", {}).get("headers", []):
                if "exact" in match["string_match"]:
                    assert match["string_match"]["exact"] == value
    else:
        grammar = HAPROXY if to == "haproxy" else NFT
        for line in text.split("\n"):
            assert grammar.fullmatch(line), line


def test_the_grammars_can_fail() -> None:
    assert NFT.fullmatch("    flush ruleset") is None
    assert HAPROXY.fullmatch("    http-request return status 200 if { src 1.2.3.4 } x") is None
    assert HAPROXY.fullmatch("    user root") is None


@pytest.mark.parametrize("word", ["include", "default", "hostnames", "volatile", "get", "~"])
def test_words_of_maps_are_values(word: str) -> None:
    """nginx does not care for quotes around them."""
    for key in ("method", "host", "header:x-a", "path"):
        text = made_of("nginx", "web", key, word, "a")
        assert text is not None
        (last,) = [words for words in directives(text) if words[-1] == "all"]
        assert last[0].startswith("~^")


@pytest.mark.parametrize("to", TARGETS)
def test_scopes_of_addresses_are_refused(to: str) -> None:
    """ipaddress takes any text for one."""
    for value in ('fe80::1%"; } evil', "fe80::1%eth0 accept; flush ruleset"):
        assert made_of(to, "web", "remote_address", value, "a") is None


def test_names_of_files_are_comments(tmp_path: Path) -> None:
    file = tmp_path / "rules\u2028evil on;\r.yaml"
    file.write_text("domain: web\ndescriptors:\n  - key: remote_address\n    limits: 2/second\n")
    read = load_rules([file])
    named = replace(read, files=(*read.files, "a\nevil on;"))
    for to in TARGETS:
        text = export(named, to, approximate=True, keys=9).text
        assert "evil" in text
        assert not any(line.lstrip().startswith("evil") for line in text.splitlines())


# Real servers ------------------------------------------------------------------------------------

VALUES = [
    'a"b', "a'b", "a\\b", "a{b}", "a;b", "a#b", "$uri", "${uri}", "%[src]", "a b", "-i", "--",
    "~a", "^a$", "(?i)a", ".*", "a\\z", "[a]", "a|b", "@a", "!a", "a: b", "- a", "&a", "%n", "é",
    'x" ""; } evil', "' } { src 0.0.0.0/0", '"}]} evil: [', "A", "a",
]  # fmt: skip


def hostile_rules() -> dict[str, Any]:
    steps: list[Any] = [
        {"key": "header:x-a", "value": value, "limits": "2/hour"} for value in VALUES
    ]
    return rules(*steps, {"key": "header:x-a", "value": "wild\"$*'}", "limits": "2/hour"})


def sent() -> list[dict[str, str]]:
    values = [*VALUES, "wild\"$ and '}", 'wild"$ and more', "other", "aa", "AB"]
    return [
        {"peer": "127.0.0.1", "header:x-a": value.encode().decode("latin-1")}
        for value in values
        for _ in range(3)
    ]


def check(clients: Any, made: Any) -> None:
    got = []
    for request in sent():
        admitted = clients(request)
        raw = request["header:x-a"].encode("latin-1").decode()
        got.append(Asked({"peer": "127.0.0.1", "header:x-a": raw}, 10**18, 10**18, admitted))
    result = judge(made.means, got, slack=0)
    assert result.differ == []
    assert result.admitted == 2 * (len(VALUES) + 1) + 3 * 4


def test_hostile_values_in_nginx(tmp_path: Path) -> None:
    hostile = hostile_rules()
    for step in hostile["descriptors"]:
        step["limits"] = "2/minute"  # nginx has nothing slower
    made = export(hostile, "nginx", approximate=True, keys=9)
    with nginx(made.text, tmp_path) as clients:
        check(clients, made)


def test_hostile_values_in_envoy(tmp_path: Path) -> None:
    made = export(hostile_rules(), "envoy", approximate=True, keys=9)
    with envoy(made.text, tmp_path) as clients:
        check(clients, made)


def test_hostile_values_in_haproxy(tmp_path: Path) -> None:
    made = export(hostile_rules(), "haproxy", approximate=True, keys=9)
    with haproxy(made.text, tmp_path) as clients:
        check(clients, made)


@pytest.mark.parametrize(
    ("to", "server"), [("nginx", nginx), ("envoy", envoy), ("haproxy", haproxy)]
)
def test_hostile_paths(to: str, server: Any, tmp_path: Path) -> None:
    paths = [f"/{value}" for value in VALUES if "\\" not in value and "%" not in value]
    paths = [path for path in paths if not set("#;?").intersection(path)]
    steps: list[Any] = [{"key": "path", "value": path, "limits": "2/minute"} for path in paths]
    made = export(rules(*steps), to, approximate=True, keys=9)
    got = []
    with server(made.text, tmp_path) as clients:
        for path in [*paths, "/none"]:
            request = {"peer": "127.0.0.1", "target": urllib.parse.quote(path)}
            got += [Asked(request, 10**18, 10**18, clients(request)) for _ in range(3)]
    result = judge(made.means, got, slack=0)
    assert result.differ == []
    assert result.admitted == 2 * len(paths) + 3


def test_long_values_are_refused() -> None:
    for to in ("nginx", "envoy", "haproxy"):
        assert made_of(to, "web", "header:x-a", "é" * 300, "a") is None
