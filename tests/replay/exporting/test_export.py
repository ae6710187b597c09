"""What is exported, what is refused and why, sizes, and what the exported form amounts to."""

from __future__ import annotations

import ipaddress
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Limit, Limiter, MemoryStore
from penstock.cli import main
from penstock.replay import ExportError, export, keys_of
from penstock.replay.exporting.items import items_of, together
from penstock.replay.exporting.nginx_address import ipv6_cases
from penstock.rules.lists import network_of
from penstock.rules.reading.loading import read_rules
from penstock.testing import FakeClock
from replay.exporting.test_exported_nginx import BY_ADDRESS, rules

CLOSED = {"key": "method", "rate_limit": {"unit": "day", "requests_per_unit": 0}}
TARGETS = ("nginx", "envoy", "nftables", "haproxy")
SECOND = 10**9

# What is refused ---------------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, str]] = {
    "debt": ("limits: {limit: 5/minute, debt: 3}", "use burst"),
    "lockout": ("limits: 5/minute lockout 15m", "leave it out"),
    "soft": ("limits: {limit: 5/minute, soft: 2 for 1m}", "raise the limit"),
    "warm_up": ("limits: 5/minute warm_up 1h", "leave it out"),
    "initial": ("limits: 5/minute initial 1", "begin with all of burst"),
    "calendar": ("limits: {limit: 5/day, algorithm: fixed_window, tz: Asia/Taipei}", "5|100/day"),
    "count_rejected": ("limits: 5/minute sliding_log count_rejected", "leave it out"),
    "cost": ("limits: 5/minute\n    cost: 3", "divide the limit"),
    "plans": ("plans: {by: remote_address, tiers: {a: 5/minute}}", "for each tier"),
    "split": ("limits: 5/minute\n    split: {percent: 10, limits: 9/minute}", "one limit"),
    "schedule": (
        'limits: 5/minute\n    schedule: [{from: "08:00", to: "18:00", limits: 9/minute}]',
        "one file for each",
    ),
    "quota_mode": ("limits: 5/minute\n    quota_mode: true", "leave it out"),
    "deny": ("limits: 5/minute\n    deny: [192.0.2.7]", "in the target's own words"),
    "allow": ("limits: 5/minute\n    allow: [192.0.2.7]", "in the target's own words"),
}


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("what", REFUSED)
def test_refusals_name_the_place_the_reason_and_what_to_write(
    what: str, to: str, tmp_path: Path
) -> None:
    yaml, instead = REFUSED[what]
    file = tmp_path / "rules.yaml"
    file.write_text(f"domain: web\ndescriptors:\n  - key: remote_address\n    {yaml}\n")
    with pytest.raises(ExportError) as error:
        export(file, to, approximate=True)
    text = str(error.value)
    assert re.search(rf"{re.escape(str(file))}:[345]:\d+: ", text), text
    assert re.search(instead, text), text


def test_all_problems_are_listed() -> None:
    with pytest.raises(ExportError) as error:
        export(
            rules(
                BY_ADDRESS | {"limits": "5/minute lockout 1m"},
                {"key": "user", "limits": "5/second"},
                {"key": "method", "limits": "5/second"},
            ),
            "nftables",
        )
    assert len(error.value.problems) == 3


def test_a_user_is_known_by_a_header_only() -> None:
    rule = {"key": "user", "limits": "5/second"}
    with pytest.raises(ExportError, match="--dimension user=header:NAME"):
        export(rules(rule), "nginx")
    made = export(rules(rule), "nginx", dimensions=["user=header:X-User-Id"])
    assert "$http_x_user_id" in made.text
    with pytest.raises(ValueError, match="NAME=SOURCE"):
        export(rules(rule), "nginx", dimensions=["user=nonsense"])


@pytest.mark.parametrize(
    ("to", "rule", "reason"),
    [
        ("nginx", BY_ADDRESS | {"limits": "10/day"}, "nothing slower than 1r/m"),
        ("nginx", BY_ADDRESS | {"limits": "1000/hour"}, "4.2 % below"),
        ("nginx", BY_ADDRESS | {"limits": "9/second", "group": {"ipv4": 20}}, "points and colons"),
        ("nginx", CLOSED, "return 429"),
        ("envoy", CLOSED, "direct_response"),
        ("envoy", BY_ADDRESS | {"concurrency": 3}, "circuit_breakers"),
        ("envoy", {"key": "cookie:sid", "limits": "9/second"}, "no cookies"),
        ("envoy", BY_ADDRESS | {"limits": "9/second leaky_bucket"}, "delays no requests"),
        ("nftables", BY_ADDRESS | {"limits": "9/second leaky_bucket"}, "delays nothing"),
        ("haproxy", BY_ADDRESS | {"limits": "9/second leaky_bucket"}, "delays no requests"),
        ("haproxy", BY_ADDRESS | {"limits": "9/30d fixed_window"}, "up to 24 days"),
        ("nginx", BY_ADDRESS | {"limits": "9/second", "lease": True}, "every instance admits all"),
        ("nginx", BY_ADDRESS | {"limits": "9/second fixed_window"}, "up to 17 in some 1s"),
        ("haproxy", BY_ADDRESS | {"limits": "9/second"}, "instead of a bucket"),
    ],
)  # fmt: skip
def test_what_one_target_cannot_do(to: str, rule: dict[str, Any], reason: str) -> None:
    with pytest.raises(ExportError, match=re.escape(reason)):
        export(rules(rule), to)


def test_approximations_take_a_word() -> None:
    rule = BY_ADDRESS | {"limits": "9/second fixed_window", "lease": True}
    with pytest.raises(ExportError, match="--approximate permits that"):
        export(rules(rule), "nginx")
    made = export(rules(rule), "nginx", approximate=True)
    assert "# APPROXIMATE: a bucket instead of a fixed_window" in made.text
    assert "# APPROXIMATE: a limit for a shared store" in made.text
    assert any("approximate" in warning for warning in made.warnings)


def test_some_rules_only() -> None:
    two = rules(BY_ADDRESS | {"limits": "9/second"}, {"key": "user", "limits": "9/second"})
    made = export(two, "nginx", only=["web/remote_address"])
    assert "Only web/remote_address" in made.text
    with pytest.raises(
        ExportError, match="no rule web/nobody; there are web/remote_address, web/user"
    ):
        export(two, "nginx", only=["web/nobody"])


def test_domains_and_targets_by_name() -> None:
    with pytest.raises(ExportError, match="no domain 'api'; they have web"):
        export(rules(BY_ADDRESS | {"limits": "9/second"}), "nginx", domain="api")
    with pytest.raises(ExportError, match="use one of nginx, envoy, nftables, haproxy"):
        export(rules(BY_ADDRESS | {"limits": "9/second"}), "apache")
    with pytest.raises(ExportError, match="nothing to export"):
        export(rules({"key": "ip", "rate_limit": {"unlimited": True}}), "nginx")
    with pytest.raises(ExportError, match="a port is a number"):
        export(rules(BY_ADDRESS | {"limits": "9/second"}), "nftables", ports=[0])


def test_too_many_limits() -> None:
    many = [{"key": "path", "value": f"/{at}", "limits": "9/second"} for at in range(1001)]
    with pytest.raises(ExportError, match="1,001 limits are too many"):
        export(rules(*many), "nginx")
    assert export(rules(*many[:400]), "haproxy", approximate=True).text.count("\nbackend ") == 400


# Sizes -------------------------------------------------------------------------------------------


def test_sizes_come_from_the_number_of_keys() -> None:
    log = [
        {"time": 1_760_000_000 + at, "remote_address": f"10.{at >> 16}.{at >> 8 & 255}.{at & 255}"}
        for at in range(40_000)
    ]
    by = rules(BY_ADDRESS | {"limits": "5/second"})
    keys = keys_of(by, log)
    assert keys == {"web/remote_address": 40_000}
    assert "zone=penstock_1:7m " in export(by, "nginx", keys=keys).text  # 50 000 of 128 bytes
    assert "max_dynamic_descriptors: 50000" in export(by, "envoy", keys=keys).text
    assert "size 50000;" in export(by, "nftables", keys=keys).text
    assert "size 50000 " in export(by, "haproxy", keys=keys, approximate=True).text
    unsaid = export(by, "envoy")
    assert "max_dynamic_descriptors: 65536" in unsaid.text
    assert any("--log or --keys" in warning for warning in unsaid.warnings)


def test_nft_keeps_keys_until_their_buckets_are_full() -> None:
    made = export(rules(BY_ADDRESS | {"limits": "10/hour burst 5"}), "nftables", keys=9)
    assert "timeout 1801s;" in made.text
    assert "update @penstock_1_ipv4" in made.text
    assert " add @" not in made.text


# Which requests ----------------------------------------------------------------------------------


def test_rules_that_never_meet() -> None:
    text = """
domain: web
descriptors:
  - {key: path, value: /a, limits: 1/second}
  - {key: path, value: /b, limits: 1/second}
  - {key: path, value: /b*, limits: 1/second}
  - {key: path, limits: 1/second}
  - {key: method, limits: 1/second}
"""
    items, _ = items_of(read_rules(text).domains["web"], {})
    a, b, wild, rest, method = items
    assert [other.rule.id for other in items if together(a, other)] == [a.rule.id, method.rule.id]
    assert not together(b, wild)
    assert not together(wild, a)
    assert not together(rest, b)
    assert all(together(method, other) for other in items)


@given(
    st.lists(st.sampled_from([0, 0, 1, 0xDB8, 0xFFFF]), min_size=8, max_size=8), st.integers(1, 7)
)
def test_ipv6_networks_in_nginx(groups: list[int], wanted: int) -> None:
    address = ipaddress.IPv6Address(":".join(f"{group:x}" for group in groups))
    cases = [
        (re.compile(regex.replace("(?<", "(?P<").replace(r"\z", r"\Z")), text)
        for regex, text in ipv6_cases(wanted)
    ]
    fits = [(match, text) for regex, text in cases if (match := regex.match(str(address)))]
    match, text = fits[0]
    for name, value in match.groupdict().items():
        text = text.replace(f"${name}", value or "")
    if address.ipv4_mapped is None:  # those are IPv4 to Penstock, and to nginx
        whole = ipaddress.IPv6Address(text + ":0" * (8 - wanted))
        assert f"{whole}/{16 * wanted}" == network_of(str(address), (32, 16 * wanted))


# What it amounts to ------------------------------------------------------------------------------


@given(
    st.integers(1, 12),
    st.sampled_from(["fixed_window", "sliding_log", "sliding_window"]),
    st.sampled_from(TARGETS[:3]),
    st.lists(st.integers(0, SECOND // 2), max_size=60),
)
def test_never_above_is_never_above(n: int, algorithm: str, to: str, pauses: list[int]) -> None:
    limit = {"limit": f"{n}/second", "algorithm": algorithm}
    (piece,) = export(rules(BY_ADDRESS | {"limits": limit}), to, never_above=True, keys=9).pieces
    times = admitted(piece.means, pauses)
    assert all(sum(start <= t < start + SECOND for t in times) <= n for start in times)


@given(st.integers(1, 12), st.lists(st.integers(0, SECOND // 2), max_size=60))
def test_a_bucket_for_a_window_admits_what_it_says(n: int, pauses: list[int]) -> None:
    rule = BY_ADDRESS | {"limits": f"{n}/second fixed_window"}
    (piece,) = export(rules(rule), "nftables", approximate=True, keys=9).pieces
    assert f"up to {2 * n - 1} in some 1s" in piece.error[0]
    times = admitted(piece.means, pauses)
    assert all(sum(start <= t < start + SECOND for t in times) <= 2 * n - 1 for start in times)


def admitted(limit: Limit, pauses: list[int]) -> list[int]:
    clock = FakeClock()
    limiter = Limiter(limit, MemoryStore(clock=clock))
    out = []
    for pause in pauses:
        clock.advance_ns(pause)
        if limiter.hit("key").allowed:
            out.append(clock.now())
    return out


@given(
    st.integers(1, 5000), st.sampled_from(["second", "minute", "hour", "7s"]), st.integers(1, 99)
)
def test_numbers_in_the_text_are_those_that_it_amounts_to(n: int, per: str, burst: int) -> None:
    """Read back from nginx's own words, as nginx reads them."""
    by = rules(BY_ADDRESS | {"limits": f"{n}/{per} burst {burst}"})
    if Limit.parse(f"{n}/{per}").interval_ns > 60 * SECOND:
        with pytest.raises(ExportError, match="slower than 1r/m"):
            export(by, "nginx", approximate=True)
        return
    made = export(by, "nginx", approximate=True, keys=9)
    (piece,) = made.pieces
    rate = re.search(r"rate=(\d+)r/([sm]);", made.text)
    extra = re.search(r"limit_req zone=penstock_1(?: burst=(\d+))? nodelay;", made.text)
    assert rate is not None
    assert extra is not None
    kept = 1000 * int(rate[1]) // (60 if rate[2] == "m" else 1)
    assert piece.means == Limit(kept, "1000s", burst=1 + int(extra[1] or 0))
    wanted = piece.item.limit
    assert kept * wanted.period_ns <= 1000 * SECOND * wanted.amount  # never above
    exact = kept * wanted.period_ns == 1000 * SECOND * wanted.amount
    assert (piece.how == "exact") == exact


def test_comparing_with_a_log() -> None:
    log = [{"time": 1_760_000_000 + at // 4, "remote_address": "192.0.2.7"} for at in range(400)]
    by = rules(BY_ADDRESS | {"limits": "2/second"})
    assert export(by, "nginx").compare(log).change.newly_refused == 0  # type: ignore[union-attr]
    window = rules(BY_ADDRESS | {"limits": "120/minute sliding_log"})
    loose = export(window, "nginx", approximate=True).compare(log).change
    assert loose is not None
    assert loose.newly_allowed > 0
    strict = export(window, "nginx", never_above=True).compare(log).change
    assert strict is not None
    assert strict.newly_refused > 0


# On the command line -----------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text("domain: web\ndescriptors:\n  - key: remote_address\n    limits: 2/second\n")
    return path


def log_of(folder: Path, seconds: int = 1) -> Path:
    """Of 200 clients, each with ten requests, so many seconds apart."""
    path = folder / "access.log"
    start = datetime(2025, 10, 10, tzinfo=UTC)
    with path.open("w") as out:
        for turn in range(10):
            at = (start + timedelta(seconds=turn * seconds)).strftime("%d/%b/%Y:%H:%M:%S +0000")
            for client in range(200):
                out.write(f'192.0.2.{client} - - [{at}] "GET / HTTP/1.1" 200 5 "-" "-"\n')
    return path


def test_the_command(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = log_of(tmp_path)
    assert (
        main(["export", str(file), "--to", "envoy", "--log", str(log), "--compare", str(log)]) == 0
    )
    captured = capsys.readouterr()
    assert "max_dynamic_descriptors: 1024" in captured.out  # the least
    assert f"# From {file} (" in captured.out
    assert "the same decision on all 2,000 requests" in captured.err
    made = tmp_path / "limits.conf"
    assert main(["export", str(file), "--to", "nginx", "--keys", "99", "-o", str(made)]) == 0
    assert "limit_req zone=penstock_1 burst=1 nodelay;" in made.read_text()
    assert capsys.readouterr() == ("", "")


def test_the_command_refuses(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(file), "--to", "haproxy"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"penstock export: {file}:4:13: web/remote_address: not exact in HAProxy" in err
    assert main(["export", str(file), "--to", "haproxy", "--keys", "0"]) == 2
    assert main(["export", str(file.parent / "none.yaml"), "--to", "nginx"]) == 2


def test_the_command_says_what_differs(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(file.read_text().replace("2/second", "2/minute sliding_log"))
    arguments = ["export", str(file), "--to", "nginx", "--approximate"]
    log = log_of(tmp_path, seconds=10)
    assert main([*arguments, "--keys", "9", "--compare", str(log)]) == 0
    said = capsys.readouterr().err
    assert re.search(r"[1-9][\d.]* % of 2,000 requests would be decided differently: ", said)
    assert re.search(r"[1-9]\d* admitted that the rules refuse, from 200 clients", said)
    assert "  192.0.2.1: " in said


def test_simulating_what_was_exported(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(log_of(tmp_path, seconds=10))
    file.write_text(file.read_text().replace("2/second", "2/minute sliding_log"))
    assert main(["simulate", str(file), log, "--exported", "nginx", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rules"][0]["limits"] == ["33/1000s burst 2"]
    assert report["change"]["newly_allowed"] > 0
    assert main(["simulate", str(file), log, "--exported", "apache"]) == 2
    assert "use one of nginx, envoy" in capsys.readouterr().err
    assert main(["simulate", str(file), log, "--exported", "nginx", "--against", str(file)]) == 2
