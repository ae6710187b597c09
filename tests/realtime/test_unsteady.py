"""tools/test.sh: what failed beside others is run once more, alone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# In place of pytest: its runs of all tests fail as told, those of some tests by the next number.
STAND_IN = """#!/usr/bin/env bash
echo "$@" >> runs
case "$*" in
    *" -n auto"*)
        mkdir -p .make/pytest/v/cache
        cp failed .make/pytest/v/cache/lastfailed
        exit 1 ;;
    *realtime*) exit 0 ;;
    *) exit $SECOND ;;
esac
"""


def run(folder: Path, failed: list[str], second: int) -> subprocess.CompletedProcess[str]:
    (folder / "tests").symlink_to(ROOT / "tests")
    (folder / "failed").write_text(json.dumps(dict.fromkeys(failed, True)))
    for name, text in (("pytest", STAND_IN), ("python", "#!/bin/sh\nexit 1\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return subprocess.run(
        [str(ROOT / "tools" / "test.sh"), str(folder / "pytest")], cwd=folder,
        env=os.environ | {"SECOND": str(second)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


NAMES = ["tests/a.py::test_one[x y]", "tests/b.py::test_two"]


@pytest.mark.parametrize("second", [0, 1])
def test_a_failure_counts_if_it_comes_twice(second: int, tmp_path: Path) -> None:
    done = run(tmp_path, NAMES, second)
    assert done.returncode == second, done.stdout + done.stderr
    assert all((f"  {name}" in done.stdout) == (second == 0) for name in NAMES)
    assert " ".join(NAMES) in (tmp_path / "runs").read_text()


def test_many_failures_are_not_repeated(tmp_path: Path) -> None:
    done = run(tmp_path, [f"tests/a.py::test_{n}" for n in range(11)], 0)
    assert done.returncode == 1
    assert "Once more" not in done.stdout
