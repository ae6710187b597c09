"""Mistakes on the command line, and what their errors tell to write."""

from __future__ import annotations

import pytest

from penstock.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chekc", "r.yaml"], "penstock: error: unknown command 'chekc' (did you mean 'check'?)"),
        (["version"], "unknown command 'version' (did you mean '--version'?)"),
        (["help"], "unknown command 'help' (did you mean '--help'?)"),
        (["xyz"], "unknown command 'xyz': use one of demo, check, "),
        (["serve", "--ruels", "r.yaml"],
         "penstock serve: error: unrecognized arguments: --ruels r.yaml (did you mean '--rules'?)"),
        (["serve", "--ruels=r.yaml"], "unrecognized arguments: --ruels=r.yaml (did you mean"),
        (["serve", "r.yaml"], "unrecognized arguments: r.yaml (did you mean '--rules r.yaml'?)"),
        (["serve", "--xyz"], "penstock serve: error: unrecognized arguments: --xyz\n"),
        (["check", "--stict", "r.yaml"], "arguments: --stict (did you mean '--strict'?)"),
        (["top", "somewhere"], "penstock top: error: unrecognized arguments: somewhere\n"),
        (["--versoin"], "penstock: error: unrecognized arguments: --versoin (did you mean"),
    ],
)  # fmt: skip
def test_what_was_probably_meant(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_command_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: penstock [-h]" in capsys.readouterr().err
