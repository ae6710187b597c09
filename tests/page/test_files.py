"""The files of the page: small, unchanged where they are not ours, and served with care."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import penstock.page.files as files
from penstock.page import page_file
from penstock.wires.http.messages import HttpRequest, HttpResponse

STATIC = Path(files.__file__).parent / "static"
# As their authors ship them: uPlot 1.6.32, and htm 3.1.1 with Preact.
VENDORED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "preact-htm.js": "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
}


def request(path: str, method: str = "GET", **headers: str) -> HttpRequest:
    asked = HttpRequest("127.0.0.1")
    asked.method, asked.path = method, path
    asked.headers = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return asked


def served(path: str, **headers: str) -> HttpResponse:
    response = page_file(request(path, **headers))
    assert response is not None
    return response


@pytest.mark.parametrize("name", VENDORED)
def test_what_is_not_ours_is_as_its_authors_ship_it(name: str) -> None:
    content = (STATIC / "vendor" / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == VENDORED[name]


def test_every_vendored_file_has_its_licence() -> None:
    names = {path.name for path in (STATIC / "vendor").iterdir()}
    assert names == {*VENDORED, "LICENSE-uPlot.txt", "LICENSE-htm.txt", "LICENSE-preact.txt"}


def test_it_is_small() -> None:
    loaded = [path for path in STATIC.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg")]
    assert sum(path.stat().st_size for path in loaded) <= 150_000


def test_a_browser_gets_the_page_and_others_do_not() -> None:
    page = served("/", accept="text/html,application/xhtml+xml")
    assert page.status == 200
    assert page.content_type == "text/html; charset=utf-8"
    assert page_file(request("/", accept="*/*")) is None
    assert page_file(request("/")) is None


def test_the_page_asks_for_what_is_there_and_for_nothing_elsewhere() -> None:
    for path in STATIC.glob("*.*"):
        text = path.read_text()
        for name in re.findall(r'(?:href|src|from) ?=? ?"(?:/page/|\./)([^"#]+)"', text):
            assert served(f"/page/{name}").status == 200, f"{path.name} asks for {name}"
        links = re.findall(r"https?://[^\"'\s]+", text)
        assert [link for link in links if "w3.org" not in link and "localhost" not in link] == []


@pytest.mark.parametrize(
    "path",
    ["/page/", "/page/../files.py", "/page/%2e%2e/files.py", "/page/vendor/../page.css",
     "/page/vendor", "/page//page.css", "/page/page.css/", "/page/nothing.js", "/pages/page.css",
     "/page/\x00", "/page/..\\files.py", "/static/page.css", "/v1/rules"],
)  # fmt: skip
def test_there_are_no_other_paths(path: str) -> None:
    assert page_file(request(path, accept="text/html")) is None


def test_only_reading() -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert page_file(request("/", method, accept="text/html")) is None


def test_a_browser_may_do_nothing_else_with_it() -> None:
    headers = dict(served("/page/app.js").headers)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_our_scripts_make_no_markup_of_text() -> None:
    for path in STATIC.glob("*.js"):
        text = path.read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
                     "dangerouslySetInnerHTML", "new Function"):  # fmt: skip
            assert word not in text, f"{path.name} has {word}"


def test_it_is_sent_once() -> None:
    first = served("/page/app.js")
    tag = dict(first.headers)["ETag"]
    again = served("/page/app.js", if_none_match=tag)
    assert (again.status, again.body) == (304, b"")
    assert served("/page/app.js", if_none_match='"other"').status == 200
