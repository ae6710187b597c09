"""What a real Envoy does with exported limits, against what Penstock does."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from penstock.replay import ExportError, export
from replay.exporting.driving import drive, judge, most_in_window
from replay.exporting.servers import envoy
from replay.exporting.test_exported_nginx import BY_ADDRESS, requests, rules


def test_a_bucket_is_exact(tmp_path: Path) -> None:
    made = export(rules(BY_ADDRESS | {"limits": "20/second burst 10"}), "envoy", keys=100)
    assert [piece.how for piece in made.pieces] == ["exact"]
    with envoy(made.text, tmp_path) as clients:
        asked = drive(clients, requests(400), 0.025)
    result = judge(made.rules, asked)
    assert result.differ == []
    assert result.compared >= 200
    assert 50 < result.admitted < 350
    assert set(clients.statuses) == {200, 429}


def test_rules_that_never_meet_are_exact(tmp_path: Path) -> None:
    """By header and path, with values, wildcards, and what other steps leave."""
    tenants = {
        "key": "header:x-tenant",
        "descriptors": [
            {"key": "path", "value": "/login", "limits": "8/second burst 4"},
            {"key": "path", "value": "/api/*", "share_threshold": True, "limits": "10/second"},
        ],
    }
    special = {
        "key": "header:x-tenant",
        "value": "spe$cial",
        "descriptors": [{"key": "path", "value": "/login", "limits": "5/second burst 2"}],
    }
    made = export(rules(tenants, special), "envoy", keys=100)
    assert {piece.how for piece in made.pieces} == {"exact"}
    fields = itertools.cycle(
        {"target": target, "header:x-tenant": tenant}
        for target in ("/login?a=/api/", "/api/", "/api/users?x", "/other", "/LOGIN")
        for tenant in ("al", "spe$cial", "bob")
    )
    sent = [one | next(fields) for one in requests(450)]
    with envoy(made.text, tmp_path) as clients:
        asked = drive(clients, sent, 0.012)
    result = judge(made.rules, asked)
    assert result.differ == []
    assert result.compared >= 200
    assert any(not each.admitted for each in asked)


def test_each_path_has_its_bucket(tmp_path: Path) -> None:
    made = export(rules({"key": "path", "limits": "2/hour"}), "envoy", keys=100)
    targets = ["/a", "/a?b=1", "/%61", "/b", "//b", "/b?", "/x/../b", "/A", "/%41"]
    with envoy(made.text, tmp_path) as clients:
        got = [clients({"peer": "127.0.0.1", "target": target}) for target in targets]
    assert got == [True, True, False, True, True, False, False, True, True]


def test_a_window_stays_within_the_stated_error(tmp_path: Path) -> None:
    limit = {"limit": "15/second", "algorithm": "fixed_window"}
    made = export(rules(BY_ADDRESS | {"limits": limit}), "envoy", never_above=True, keys=100)
    assert "at most 15 in any 1s" in made.text
    with envoy(made.text, tmp_path) as clients:
        asked = drive(clients, requests(250, clients=1), 0.03)
    assert judge(made.means, asked).differ == []
    assert 5 < most_in_window(asked, 10**9) <= 15


def test_there_is_room_for_all_keys(tmp_path: Path) -> None:
    """Envoy forgets keys beyond max_dynamic_descriptors, and its default is 20."""
    made = export(rules(BY_ADDRESS | {"limits": "2/hour"}), "envoy", keys=60)
    with envoy(made.text, tmp_path) as clients:
        sent = [{"peer": f"127.0.1.{at}"} for at in range(1, 61)]
        rounds = [[clients(request) for request in sent] for _ in range(3)]
    assert [sum(each) for each in rounds] == [60, 60, 0]


def test_limits_that_meet_are_not_exact() -> None:
    several: list[Any] = [
        BY_ADDRESS | {"limits": "9/second"},
        {"key": "method", "limits": "9/second"},
    ]
    with pytest.raises(ExportError, match="a request that those refuse may be counted here"):
        export(rules(*several), "envoy")
    made = export(rules(*several), "envoy", approximate=True)
    assert made.text.count("# APPROXIMATE: not decided together with") == 2


def test_a_shadow_refuses_nothing(tmp_path: Path) -> None:
    rule = BY_ADDRESS | {"limits": "1/hour", "shadow_mode": True}
    made = export(rules(rule), "envoy", keys=9)
    with envoy(made.text, tmp_path) as clients:
        assert all(clients({"peer": "127.0.0.1"}) for _ in range(5))
