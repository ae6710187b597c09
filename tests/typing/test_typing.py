"""What users write passes mypy and pyright; what they get wrong is reported by both."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
GOOD, WRONG = HERE / "good.py", HERE / "wrong.py"


def mypy(path: Path) -> list[int]:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert done.returncode == 0 or lines, done.stdout + done.stderr
    return [line_of(line, path) for line in lines]


def line_of(error: str, path: Path) -> int:
    name, number, _ = error.split(":", 2)
    assert (ROOT / name) == path, error
    return int(number)


def pyright(path: Path) -> list[int]:
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--level", "error"]
    command += ["--project", str(HERE), "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    problems = json.loads(done.stdout)["generalDiagnostics"]
    return [p["range"]["start"]["line"] + 1 for p in problems if p["file"] == str(path)]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_what_users_write_passes(checker: object) -> None:
    assert callable(checker)
    assert checker(GOOD) == []


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_what_users_get_wrong_is_reported(checker: object) -> None:
    assert callable(checker)
    lines = enumerate(WRONG.read_text().splitlines(), 1)
    expected = [number for number, line in lines if line.endswith("# wrong")]
    assert sorted(set(checker(WRONG))) == expected
