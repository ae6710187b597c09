"""The guide: its commands run, and print what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs/howto/export-limits.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)


def write_log(path: Path) -> None:
    """Ten people, and a program that asks for 15 pages a second."""
    start = datetime(2025, 10, 10, tzinfo=UTC)
    with path.open("w") as out:
        for second in range(600):
            at = (start + timedelta(seconds=second)).strftime("%d/%b/%Y:%H:%M:%S +0000")
            clients = ["192.0.2.99"] * 15 if second % 60 < 8 else []
            clients += [f"192.0.2.{second % 10}"]
            for client in clients:
                out.write(f'{client} - - [{at}] "GET / HTTP/1.1" 200 5 "-" "-"\n')


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = re.sub(r"^penstock ", f"{sys.executable} -m penstock ", command)
    return subprocess.run(
        command, shell=True, cwd=folder, capture_output=True, text=True, timeout=120,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
    )  # fmt: skip


def test_the_commands_of_the_guide(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE)
    (tmp_path / "rules.yaml").write_text(next(text for kind, text in blocks if kind == "yaml"))
    write_log(tmp_path / "access.log")
    said = ""
    shown = 0
    for kind, text in blocks:
        if kind == "sh":
            for line in text.splitlines():
                done = run(line, tmp_path)
                assert done.returncode == 0, done.stderr
                said += done.stdout + done.stderr
        elif kind == "text" and text.startswith("$ "):
            command, _, output = text.removeprefix("$ ").partition("\n")
            done = run(command, tmp_path)
            assert done.stdout + done.stderr == output
            assert done.returncode == 1
            shown += 1
        elif kind == "text":
            assert text in said
            shown += 1
        elif kind == "nginx":
            assert text in (tmp_path / "penstock-limits.conf").read_text()
            shown += 1
    assert shown == 4
    assert (tmp_path / "penstock.cfg").read_text().count("# APPROXIMATE") >= 2
