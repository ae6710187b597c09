"""Synthetic traffic: the text means what it says, and the same text gives the same requests."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.replay import simulate
from penstock.replay.traffic import Traffic

RULES = "domain: api\ndescriptors:\n  - key: ip\n    limits: 60/minute\n"
OLDER = RULES.replace("60/minute", "600/minute")


def requests_of(text: str) -> list[tuple[int, ...]]:
    traffic, rows = Traffic(text), []
    for block in traffic.blocks():
        rows += list(zip(block.times[: block.n], *(w[: block.n] for w in block.words), strict=True))
    return rows


@pytest.mark.parametrize(
    ("text", "clients"),
    [
        ("poisson 50/s keys 40 zipf 1.1 for 2m", 40),
        ("poisson 20/s keys 10 for 1m, burst 50 every 10s", 11),
        ("steady 10/s keys 5 for 1m, poisson 5/s keys 9 for 1m, burst 3 keys 4 every 20s", 13),
    ],
)
def test_clients_have_an_address_and_a_user_each(text: str, clients: int) -> None:
    traffic = Traffic(text)
    pairs = {(row[1], row[4]) for row in requests_of(text)}
    assert len(pairs) == clients == len({a for a, _ in pairs}) == len({u for _, u in pairs})
    rows = requests_of(text)
    assert rows == requests_of(text)  # the same text, the same requests
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert traffic.notes == [f"synthetic traffic: {text}"]


def test_a_burst_is_refused_beyond_the_limit(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    report = simulate(rules, Traffic("burst 100 every 10m for 1h"))
    assert report.rule("api/ip").asked == 600
    assert report.rule("api/ip").refused == 6 * 40


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "new.yaml").write_text(RULES)
    (tmp_path / "old.yaml").write_text(OLDER)
    return tmp_path


TRAFFIC = "poisson 20/s keys 50 zipf 1.1 for 5m, burst 50 every 1m"


def test_the_command_takes_it(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new, html = str(rules / "new.yaml"), rules / "report.html"
    assert main(["simulate", new, "--traffic", TRAFFIC, "--json", "--html", str(html)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["requests"] > 5000
    assert html.read_text().startswith("<!doctype html>")
    assert main(["simulate", new, "--traffic", TRAFFIC, "--csv"]) == 0
    assert len(list(csv.reader(io.StringIO(capsys.readouterr().out)))) > 2


def test_the_command_compares_rules(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ["simulate", str(rules / "new.yaml"), "--against", str(rules / "old.yaml")]
    assert main([*both, "--traffic", TRAFFIC, "--quiet"]) == 0
    assert "ip=10.0.0.0" in capsys.readouterr().out


def test_the_command_fails_on_a_condition(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", str(rules / "new.yaml"), "--traffic", TRAFFIC, "--quiet", "--fail-if"]
    assert main([*command, "refused > 0.1%"]) == 1
    assert main([*command, "refused > 99%"]) == 0
    capsys.readouterr()


def test_the_comparison_keeps_the_burst_of_a_limit() -> None:
    """What the rules have already is in its row as it is written."""
    rules = RULES.replace("60/minute", "60/minute burst 15")
    report = simulate(rules, Traffic(TRAFFIC), algorithms=True)
    refused = {row.algorithm: row.refused for row in report.algorithms}
    assert refused["token_bucket"] == report.refused
    assert refused["sliding_log"] < report.refused  # it has no burst: 60 in any minute
