"""simulate and recommend as people type them: options anywhere, pipes that end early."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import main, parse

RULES = "domain: web\ndescriptors:\n  - key: remote_address\n    limits: 3/hour\n"
LINE = '192.0.2.{who} - - [10/Oct/2026:13:{minute:02}:00 +0000] "GET / HTTP/1.1" 200 5 "-" "x"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "old.yaml").write_text(RULES.replace("3/hour", "100/hour"))
    (tmp_path / "new.yaml").write_text(RULES)
    (tmp_path / "access.log").write_text(
        "".join(LINE.format(who=at % 5, minute=at // 5) for at in range(50))
    )
    return tmp_path


@pytest.mark.parametrize(
    "order",
    [
        "{new} --against {old} {log}",
        "--against {old} {new} {log}",
        "{new} {log} --against {old}",
        "{new} --format combined {log} --against {old} --quiet",
        "{new} --json --against={old} {log}",
    ],
)
def test_options_may_stand_anywhere(
    order: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"new": folder / "new.yaml", "old": folder / "old.yaml", "log": folder / "access.log"}
    words = order.format(**names).split()
    assert main(["simulate", *words, *([] if "--json" in words else ["--json"])]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["requests"] == 50
    assert report["change"]["newly_refused"] == report["refused"] == 50 - 5 * 3


def test_logs_may_stand_on_both_sides_of_an_option() -> None:
    assert parse(["recommend", "a.log", "--by", "user", "b.log"]).logs == ["a.log", "b.log"]
    parsed = parse(["simulate", "r.yaml", "a.log", "--algorithms", "b.log"])
    assert (parsed.rules, parsed.logs) == ("r.yaml", ["a.log", "b.log"])


def test_a_wrong_option_is_still_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["simulate", "r.yaml", "--agianst", "old.yaml", "a.log"])
    assert "did you mean '--against'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse(["simulate"])
    assert "usage: penstock simulate [-h] [--against RULES]" in capsys.readouterr().err


def test_a_closed_pipe_does_not_hide_the_exit_code(folder: Path) -> None:
    command = [sys.executable, "-m", "penstock", "simulate", "new.yaml", "access.log"]
    with subprocess.Popen(
        [*command, "--fail-if", "refused > 1%"], cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # before it prints anything
        errors = process.stderr.read().decode()
        assert process.wait(60) == 1
    assert "refused > 1%: it is 70%" in errors
    assert "BrokenPipe" not in errors


def test_the_help_shows_a_percent_sign(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["simulate", "--help"])
    text = capsys.readouterr().out
    assert "0.1%" in text
    assert "%%" not in text
