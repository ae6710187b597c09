"""What users write passes mypy and pyright; what they get wrong is reported by both."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
GOOD, WRONG = HERE / "good.py", HERE / "wrong.py"

Errors = dict[Path, dict[int, str]]  # by file and line


def mypy() -> Errors:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    done = subprocess.run(
        [*command, str(GOOD), str(WRONG)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr  # it has found what is wrong
    errors: Errors = {GOOD: {}, WRONG: {}}
    for line in done.stdout.splitlines():
        if ": error: " in line:
            name, number, message = line.split(":", 2)
            errors[ROOT / name][int(number)] = message
    return errors


def pyright() -> Errors:
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--level", "error"]
    command += ["--project", str(HERE), "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr  # it has found what is wrong
    errors: Errors = {GOOD: {}, WRONG: {}}
    for problem in json.loads(done.stdout)["generalDiagnostics"]:
        line = problem["range"]["start"]["line"] + 1
        errors[Path(problem["file"])][line] = problem["message"]
    return errors


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_what_users_write_passes_and_what_they_get_wrong_does_not(
    checker: Callable[[], Errors],
) -> None:
    errors = checker()
    assert errors[GOOD] == {}
    lines = enumerate(WRONG.read_text().splitlines(), 1)
    assert sorted(errors[WRONG]) == [n for n, line in lines if line.endswith("# wrong")]
