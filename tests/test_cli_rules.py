"""``penstock check`` and ``penstock explain``: what they print, and their exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("yaml")

from penstock.cli import main

EXAMPLES = Path(__file__).parents[1] / "examples/rules"
LOGIN = str(EXAMPLES / "login.yaml")


def test_check_says_that_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(EXAMPLES)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ok: 13 rules in accounts, api, ")
    assert "\x1b" not in out, "no colours in a pipe"


def test_check_says_all_that_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "domain: a\ndescriptors:\n - {key: x, valu: 1}\n"
        " - {key: y, rate_limit: {unit: hur, requests_per_unit: 1}}\n"
    )
    assert main(["check", str(file)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"error   {file}:3:13: unknown key 'valu' (did you mean 'value'?)"
    assert out[1] == f"error   {file}:4:32: unknown unit 'hur' (did you mean 'hour'?)"
    assert out[2].startswith(f"warning {file}:3:4: this step has no limit")
    assert out[3] == "2 problems: these rules are invalid"


def test_strict_means_warnings_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("domain: a\ndescriptors: [{key: x}]\n")
    assert main(["check", str(file)]) == 0
    assert main(["check", "--strict", str(file)]) == 1
    assert main(["check", str(tmp_path / "missing.yaml")]) == 1
    assert "missing.yaml" in capsys.readouterr().out


def test_explain_says_which_rule_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["path=/login", "ip=1.2.3.4", "--", "path=/logout"]
    assert main(["explain", LOGIN, *asked]) == 0
    out = capsys.readouterr().out
    for line in (
        "path=/login ip=1.2.3.4",
        "counted as '1.2.3.0/24'",
        "the rule login/path=%2Flogin/ip applies",
        "allowed by 5/minute lockout 15m on_failure closed, 4 left after it",
        "path=/logout",
        "allowed: unmatched",
        "the request: allowed",
    ):
        assert line in out, line


def test_explain_says_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", LOGIN, "--hits", "9", "path=/login", "ip=1.2.3.4"]) == 1
    assert "the request: refused" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([LOGIN], "name at least one pair"),
        ([LOGIN, "path"], "write a pair as KEY=VALUE, not 'path'"),
        ([LOGIN, "a=1", "--"], "name at least one pair"),
        ([str(EXAMPLES), "a=1"], "name the domain"),
        ([LOGIN, "--domain", "x", "a=1"], "no domain 'x': there are login"),
        ([LOGIN, "--domain", "logn", "a=1"], "no domain 'logn' (did you mean 'login'?)"),
        (["missing.yaml", "a=1"], "missing.yaml"),
    ],
)
def test_explain_says_what_it_cannot_read(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words]) == 2
    assert message in capsys.readouterr().err


def test_explain_says_concurrency(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("domain: a\ndescriptors: [{key: x, concurrency: 3, slot_lease: 1m}]\n")
    assert main(["explain", str(file), "x=1"]) == 0
    assert "allowed by concurrency 3 slot_lease 1m, 2 left after it" in capsys.readouterr().out
