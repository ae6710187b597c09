"""What the pages say is run, what they link to exists, and the examples work."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.S | re.M)
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    names: dict[str, object] = {"__name__": "__docs__"}
    for block in _BLOCK.finditer(text):
        source, line = block.group(1), text[: block.start()].count("\n") + 1
        if source.lstrip().startswith(">>>"):
            case = doctest.DocTestParser().get_doctest(source, names, _name(page), None, line)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            assert runner.run(case, clear_globs=False).failed == 0, f"{_name(page)}:{line}"
            names.update(case.globs)
        else:
            exec(compile("\n" * line + source, _name(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text()):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        found = page.parent / target
        assert found.exists(), f"{_name(page)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor[1:] in slugs, f"{_name(page)} links to {target}{anchor}"


@pytest.mark.parametrize("example", EXAMPLES, ids=_name)
def test_an_example_runs_as_it_is(example: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        capture_output=True, text=True, timeout=60, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_no_page_is_left_out_of_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text()
    for page in ROOT.glob("docs/**/*.md"):
        if page.name != "README.md":
            assert str(page.relative_to(ROOT / "docs")) in index
