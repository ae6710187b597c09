"""The page for users of Envoy's rate limit service, Kong and APISIX."""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from migrating.checks import check_names, left_names
from migrating.tables import NOTHING, Row, rows
from penstock import Gate
from penstock.running.settings_sources import add_flags, load
from penstock.stores.redis import RedisStore

PAGE = "coming-from-gateways"
NAMES = tomllib.loads(Path(__file__).with_name("gateways.toml").read_text())
ROWS = rows(PAGE)
RULES, SETTINGS = rows(PAGE, "Rules of Envoy's service"), rows(PAGE, "Settings of Envoy's service")


def _gate(step: str) -> Gate:
    return Gate.from_rules({"domain": "api", "descriptors": [yaml.safe_load(step)]})


def _request(step: dict[str, Any]) -> dict[str, str]:
    """A descriptor that ends at the rule of this step."""
    value = step.get("value", "10.0.0.1").replace("*", "x")
    inner = step.get("descriptors")
    return {step["key"]: value, **(_request(inner[0]) if inner else {})}


def _answers(step: str) -> list[bool]:
    gate, request = _gate(step), _request(yaml.safe_load(step))
    return [gate.check(request).allowed for _ in range(12)]


def _serve(flags: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    load(vars(parser.parse_args(flags)), {})


@pytest.mark.parametrize("row", RULES, ids=str)
def test_a_rule_of_envoys_service_decides_the_same(row: Row) -> None:
    assert _answers(row.theirs[0]) == _answers(row.ours[0])


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_our_side_of_a_row_works(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert row.theirs
    assert row.ours or (NOTHING in row.text and row.note)
    monkeypatch.chdir(tmp_path)
    Path("rules").mkdir()
    flags: list[str] = []
    for span in row.ours:
        if span.startswith("--"):
            flags += span.split()
            if "redis" in span:
                RedisStore(span.split()[1]).close()
        else:
            assert any(_answers(span))
    if flags:
        _serve([*([] if "--rules" in flags else ["--rules", "rules/"]), *flags])


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("Rules of Envoy's service", "envoy_rules"),
        ("Settings of Envoy's service", "envoy"),
        ("Kong", "kong"),
        ("APISIX", "apisix"),
    ],
)
def test_no_option_is_left_out(section: str, names: str) -> None:
    check_names(NAMES[names].split(), left_names(rows(PAGE, section)))


def test_a_setting_of_envoys_service_is_not_misspelt() -> None:
    assert {span for row in SETTINGS for span in row.theirs} <= set(NAMES["envoy"].split())
