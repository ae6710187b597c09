"""Penstock as an installed package, for runs of pytest that find its plugin by themselves."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SETTINGS = """
[pytest]
filterwarnings = error
addopts = --strict-markers -p no:cacheprovider
asyncio_default_fixture_loop_scope = function
"""


@pytest.fixture
def installed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """The entry points of pyproject.toml, whatever the environment was installed from."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    site = pytester.mkdir("site")
    info = site / "penstock-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: penstock\nVersion: 0\n")
    lines = [f"{name} = {value}" for name, value in project["entry-points"]["pytest11"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT / "src")]))
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    pytester.makeini(SETTINGS)
    return pytester
