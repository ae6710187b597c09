"""What the pages say is run, what they link to exists, and the examples work."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stores.redis_server import NO_SERVER, running_server

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))

_REDIS = "redis://localhost:6379"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.S | re.M)
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str | None]:
    with running_server() as url:
        yield url


def _at_a_real_server(text: str, request: pytest.FixtureRequest) -> str:
    """Where a page names the usual address, it gets a server that exists, and time to ask it."""
    if _REDIS not in text:
        return text
    url = request.getfixturevalue("redis_url")
    if url is None:
        pytest.skip(NO_SERVER)
    text = text.replace('deadline="10ms"', 'deadline="5s"')  # this machine may be busy
    return text.replace(f"{_REDIS}/0", _REDIS).replace(_REDIS, url)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    text = _at_a_real_server(page.read_text(), request)
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
def test_an_example_runs_as_it_is(example: Path, request: pytest.FixtureRequest) -> None:
    environment = dict(os.environ)
    if _REDIS in example.read_text():
        environment["REDIS_URL"] = _at_a_real_server(_REDIS, request)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        capture_output=True, text=True, timeout=60, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_no_page_is_left_out_of_the_index() -> None:
    """A folder with a page of its own is its own index; the other pages are in docs/README.md."""
    for page in ROOT.glob("docs/**/*.md"):
        own_index = page.with_name("README.md")
        index = own_index if own_index.exists() else ROOT / "docs/README.md"
        if page != index:
            assert f"({page.relative_to(index.parent)})" in index.read_text()
    assert "(design/README.md)" in (ROOT / "docs/README.md").read_text()


def test_the_generated_parts_of_the_reference_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools/reference.py"), "--check"]
    assert subprocess.run(command).returncode == 0, "run python tools/reference.py"


def test_contributing_lists_the_commands_of_the_makefile() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert phony is not None
    block = re.search(r"```sh\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    assert block is not None
    commands = re.findall(r"^make (\w+)", block[1], re.M)
    assert sorted(commands) == sorted(set(phony[1].split()) - {"help"})
