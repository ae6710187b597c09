"""What the pages say is run, what they link to exists, and the examples work."""

from __future__ import annotations

import doctest
import importlib
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
# The code of `PAGES` runs. Links and paths are checked in all of these.
LINKING = sorted([*PAGES, *ROOT.glob("deploy/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))

_REDIS = "redis://localhost:6379"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.S | re.M)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.S | re.M)
_LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
# `docs/why.md`, `limits.py`, `wires/http`, `algorithms/<name>.lua`
_PATH = re.compile(r"`([\w.<>*-]+(?:/[\w.<>*-]+)*/?)`")
_FILE = re.compile(r"[\w>*]\.(?:pyx?|pxd|lua|h|md|sh|toml)$")
# Files of the reader's own project, or what a command writes.
_ELSEWHERE = {"app.py", "shop/limits.py", "out/results.md"}


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
    # This machine may be busy.
    text = text.replace('deadline="10ms"', 'deadline="60s", connect_timeout="60s"')
    return text.replace(f"{_REDIS}/0", _REDIS).replace(_REDIS, url)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())  # a page may set variables
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


@pytest.mark.parametrize("page", LINKING, ids=_name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(_FENCE.sub("", page.read_text())):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        found = page.parent / target if target else page
        assert found.exists(), f"{_name(page)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor[1:] in slugs, f"{_name(page)} links to {target}{anchor}"


def _exists(path: str, beside: Path) -> bool:
    """From the root, from the source, beside the file that names it, or by its end anywhere."""
    pattern = re.sub(r"<[^>]*>", "*", path.rstrip("/"))
    places = (beside, ROOT, ROOT / "src", ROOT / "src/penstock")
    if any(any(place.glob(pattern)) for place in places):
        return True
    folders = ("src", "tests", "benchmarks", "tools", "examples", "deploy")
    return any(any((ROOT / folder).rglob(pattern)) for folder in folders)


@pytest.mark.parametrize("page", LINKING, ids=_name)
def test_the_paths_that_a_page_names_exist(page: Path) -> None:
    rooms = {path.name for path in [*ROOT.iterdir(), *(ROOT / "src/penstock").iterdir()]}
    for path in _PATH.findall(_FENCE.sub("", page.read_text())):
        is_ours = "/" in path and path.split("/")[0] in rooms
        if (is_ours or _FILE.search(path)) and path not in _ELSEWHERE:
            assert _exists(path, page.parent), f"{_name(page)} names {path}"


def test_the_files_that_comments_cite_exist() -> None:
    wrong = []
    for folder in ("src", "tests", "benchmarks", "tools", "examples", "deploy"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix not in {".py", ".pyx", ".pxd", ".pyi", ".lua", ".h", ".sh", ".yaml"}:
                continue
            for path in set(_PATH.findall(file.read_text())) - _ELSEWHERE:
                if _FILE.search(path) and not _exists(path, file.parent):
                    wrong.append(f"{_name(file)} cites {path}")
    assert not wrong


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
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) < 120
    assert max(map(len, lines)) <= 120


def test_no_page_is_left_out_of_the_index() -> None:
    """A folder with a page of its own is its own index; the other pages are in docs/README.md."""
    for page in ROOT.glob("docs/**/*.md"):
        own_index = page.with_name("README.md")
        index = own_index if own_index.exists() else ROOT / "docs/README.md"
        if page != index:
            assert f"({page.relative_to(index.parent)})" in index.read_text()
    assert "(design/README.md)" in (ROOT / "docs/README.md").read_text()


@pytest.mark.parametrize(
    "module",
    [
        "penstock",
        "penstock.adaptive",
        "penstock.client",
        "penstock.concurrency",
        "penstock.integrations",
        "penstock.integrations.asgi",
        "penstock.integrations.fastapi",
        "penstock.integrations.flask",
        "penstock.integrations.grpc",
        "penstock.integrations.wsgi",
        "penstock.metrics",
        "penstock.stores.redis",
        "penstock.testing",
    ],
)
def test_public_names_are_in_the_docs(module: str) -> None:
    text = "\n".join(page.read_text() for page in PAGES if page.name != "CHANGELOG.md")
    names = set(importlib.import_module(module).__all__) - {"__version__"}
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()


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


def test_tests_of_logic_do_not_sleep() -> None:
    """As CONTRIBUTING says. `asyncio.sleep(0)` is no sleep; watched files take real time."""
    tests = ROOT / "tests"
    logic = ("adaptive", "algorithms", "properties", "rules", "service", "testing")
    files = [
        *tests.glob("*.py"),
        *(file for name in logic for file in (tests / name).rglob("*.py")),
    ]
    asleep = {
        _name(file)
        for file in files
        if re.search(r"(time|asyncio)\.sleep\((?!0\))", file.read_text())
    }
    assert asleep <= {"tests/rules/deciding/test_gate.py"}
