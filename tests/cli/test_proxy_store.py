"""The store of ``penstock proxy``: what it may be, and how large."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("httptools")

from penstock import SharedMemoryStore
from penstock.cli import build_parser
from penstock.cli.proxy import _gate, run

RULES = "domain: web\ndescriptors:\n  - {key: ip, limits: 100/hour sliding_log}\n"


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return ["proxy", "--upstream", "http://127.0.0.1:1", "--rules", str(file), "--no-watch"]


def test_a_new_file_is_as_large_as_told_and_as_the_rules_need(
    given: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "limits"
    arguments = build_parser().parse_args(
        [*given, "--store", f"shared:{path}", "--max-keys", "500"]
    )
    with _gate(arguments) as gate:
        assert isinstance(gate.store, SharedMemoryStore)
        assert (gate.store.max_keys, gate.store.bytes_per_key) == (500, 64 + 16 * 100)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--store", "descriptor:0"], "store is memory, shared"),
        (["--store", "shared:/x", "--bytes-per-key", "64"], "rule web/ip: .* needs 1664: raise"),
        (["--max-keys", "0"], "max_keys is from 1 to"),
        (["--bytes-per-key", "20"], "bytes_per_key is a multiple of 8"),
    ],
)
def test_what_makes_no_sense_is_named(
    given: list[str], options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(build_parser().parse_args([*given, *options])) == 2
    assert re.search(said, capsys.readouterr().err)
