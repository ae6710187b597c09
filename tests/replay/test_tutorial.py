"""From a log to a limit: every command of that page runs, on a log as it assumes one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from penstock._mode import REPLAY_COMPILED
from penstock.cli import main, parse
from replay import example_log

PAGE = Path(__file__).parents[2] / "docs/howto/from-a-log-to-a-limit.md"
NGINX_CONF = "/etc/nginx/nginx.conf"
TEXT = PAGE.read_text()
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", TEXT, re.S | re.M)
    for line in block.splitlines()
    if line.startswith("penstock ")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tutorial")
    example_log.write(folder / "access.log.gz")
    example_log.write(folder / "access.log")
    with (folder / "app.jsonl").open("w") as out:
        for at, address, *_ in example_log.lines():
            out.write(f'{{"created_at":{at:.3f},"account_id":"{address}"}}\n')
    (rules,) = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.S | re.M)
    (folder / "rules.yaml").write_text(rules)
    (folder / "new.yaml").write_text(rules.replace("    shadow_mode: true\n", ""))
    (folder / "nginx.conf").write_text(
        'http { log_format main \'$remote_addr - $remote_user [$time_local] "$request" $status '
        '$body_bytes_sent "$http_referer" "$http_user_agent"\'; access_log x main; }'
    )
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    words = shlex.split(command.replace(NGINX_CONF, "nginx.conf"), comments=True)[1:]
    if not REPLAY_COMPILED and ("--traffic" in words or "app.jsonl" in words):
        parse(words)  # they take minutes uncompiled
        return
    assert main(words) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "could not be read" not in printed
    following = TEXT.split(command, 1)[1]
    match = re.match(r"\n```\n\n```text\n(.*?)```", following, re.S)
    if match:
        assert printed.startswith(match[1])


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 9
    assert {shlex.split(command)[1] for command in COMMANDS} == {"recommend", "simulate"}
    assert any(re.search(r"rules.yaml\n```|--against", command) for command in COMMANDS)


def test_files_that_it_names_are_written(folder: Path) -> None:
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert (folder / "plots" / "limits.svg").exists()
