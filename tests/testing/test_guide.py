"""The tests in the guide, run by pytest with the plugin, as its readers do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[2] / "docs/howto/test-your-code.md"


def test_the_tests_of_the_guide_pass(installed: pytest.Pytester) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.S | re.M)
    source = "\n".join(blocks)
    installed.makepyfile(test_guide=source)
    tests = len(re.findall(r"^ *def test_", source, re.M)) + 1  # one runs for two plans
    installed.runpytest_subprocess().assert_outcomes(passed=tests)
