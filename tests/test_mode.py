"""Which source is used when a build is incomplete."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock import _mode

pytestmark = pytest.mark.skipif(not _mode.COMPILED, reason="nothing is compiled")
REPORT = (
    "import penstock.limiter, penstock.service.rls_request as rls, penstock._mode as mode;"
    "files = [module.__file__ for module in (penstock.limiter, rls)];"
    "print(mode.COMPILED, *[file.rpartition('.')[2] for file in files])"
)


@pytest.mark.parametrize(
    ("missing", "report"),
    [
        ([], "True so so"),
        (["service/rls_quick"], "True so py"),  # of the service's messages: the limiter stays
        (["algorithms/lockout"], "False py py"),
    ],
)
def test_an_incomplete_build(missing: list[str], report: str, tmp_path: Path) -> None:
    package = tmp_path / "penstock"
    shutil.copytree(Path(penstock.__file__).parent, package, ignore=_caches)
    for name in missing:
        (built,) = package.glob(f"{name}.*.so")
        built.unlink()
    done = subprocess.run(
        [sys.executable, "-c", REPORT], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == report


def _caches(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]
