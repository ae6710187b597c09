"""What limits count by, in real servers: one counter for each combination of values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.replay import export
from replay.exporting.driving import Asked, judge
from replay.exporting.servers import envoy, haproxy, nginx
from replay.exporting.test_exported_nginx import rules

SERVERS = {"nginx": nginx, "envoy": envoy, "haproxy": haproxy}
HERE = {"peer": "127.0.0.1"}


def check(to: str, folder: Path, steps: list[Any], sent: list[dict[str, str]]) -> list[bool]:
    """Send each request three times; the limits admit two."""
    made = export(rules(*steps), to, approximate=True, keys=100)
    with SERVERS[to](made.text, folder) as clients:
        got = [
            Asked(request, 10**18, 10**18, clients(request)) for request in sent for _ in range(3)
        ]
    result = judge(made.means, got, slack=0)
    assert result.differ == []
    return [each.admitted for each in got]


def nested(*keys: str) -> dict[str, Any]:
    step: dict[str, Any] = {"key": keys[-1], "limits": "2/minute"}
    for key in reversed(keys[:-1]):
        step = {"key": key, "descriptors": [step]}
    return step


@pytest.mark.parametrize("to", SERVERS)
def test_several_parts(to: str, tmp_path: Path) -> None:
    """Values that would be equal if they were only put together."""
    steps = [nested("header:x-a", "path", "header:x-b", "remote_address")]
    sent = [
        {"peer": peer, "target": target, "header:x-a": a, "header:x-b": b}
        for peer in ("127.0.0.1", "127.0.0.2")
        for target in ("/", "/x")
        for a, b in (("1", "23"), ("12", "3"), ("1,2", "3"), ("1", "2,3"))
    ]
    sent += [{"peer": "127.0.0.1", "header:x-a": "1"}, {"peer": "127.0.0.1", "header:x-b": "1"}]
    admitted = check(to, tmp_path, steps, sent)
    assert admitted == [True, True, False] * 16 + [True] * 6


@pytest.mark.parametrize("to", SERVERS)
def test_method_and_host(to: str, tmp_path: Path) -> None:
    steps = [
        {"key": "method", "value": "PUT", "limits": "2/minute"},
        {"key": "host", "value": "a.example", "limits": "2/minute"},
        {"key": "host", "value": "*.b.example", "share_threshold": True, "limits": "2/minute"},
    ]
    hosts = ("a.example", "x.b.example", "y.b.example", "b.example", "aXexample")
    sent = [HERE | {"header:host": host} for host in hosts]
    sent.append(HERE | {"header:host": "c.example", "method": "PUT"})
    admitted = check(to, tmp_path, steps, sent)
    two = [True, True, False]
    assert admitted == [*two, *two, *[False] * 3, *[True] * 6, *two]


@pytest.mark.parametrize("to", ["nginx", "haproxy"])
def test_cookies(to: str, tmp_path: Path) -> None:
    sent = [
        HERE | {"header:cookie": cookie}
        for cookie in ("sid=one; a=b", "a=b; sid=two", "other=one", "sid=one")
    ]
    admitted = check(to, tmp_path, [nested("cookie:sid")], sent)
    assert admitted == [True, True, False, True, True, False, *[True] * 3, *[False] * 3]


@pytest.mark.parametrize("to", SERVERS)
def test_api_keys(to: str, tmp_path: Path) -> None:
    sent = [HERE | {"header:x-api-key": key} for key in ("one", "two", "One")] + [HERE]
    admitted = check(to, tmp_path, [nested("api_key")], sent)
    assert admitted == [True, True, False] * 3 + [True] * 3


def test_a_shadow_of_nginx_writes_a_log(tmp_path: Path) -> None:
    rule = {"key": "ip", "limits": "1/second", "shadow_mode": True}
    made = export(rules(rule), "nginx", keys=9)
    with nginx(made.text, tmp_path) as clients:
        assert all(clients(HERE) for _ in range(5))
        assert "limiting requests, dry run" in (tmp_path / "error.log").read_text()
