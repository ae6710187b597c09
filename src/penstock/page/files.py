"""The files of the page, read once, with headers that let a browser do nothing else.

The policy allows scripts and styles of this server only, none in the page's own text, and no
connection elsewhere. `require-trusted-types-for` makes it an error to turn text into markup, so
a key such as ``<img onerror=...>`` stays text even if a script is careless.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

from penstock.wires.http.messages import Header, HttpRequest, HttpResponse

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
_HEADERS: list[Header] = [
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-cache"),  # ask each time; the ETag saves sending it again
]
_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_PREFIX = "/page/"


def page_file(request: HttpRequest) -> HttpResponse | None:
    """A file of the page; None if the request is for something else."""
    if request.method not in ("GET", "HEAD"):
        return None
    if request.path == "/":
        name = "index.html" if _is_browser(request) else None
    else:
        name = request.path.removeprefix(_PREFIX) if request.path.startswith(_PREFIX) else None
    file = None if name is None else _files().get(name)
    if file is None:
        return None
    content, content_type, tag = file
    headers = [*_HEADERS, ("ETag", tag)]
    if request.header("if-none-match") == tag:
        return HttpResponse(304, b"", headers, content_type)
    return HttpResponse(200, content, headers, content_type)


def _is_browser(request: HttpRequest) -> bool:
    return "text/html" in (request.header("accept") or "")


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """Content, type and ETag by name. Only these names exist: a path is never opened."""
    files: dict[str, tuple[bytes, str, str]] = {}
    static = resources.files("penstock.page") / "static"
    for prefix, folder in (("", static), ("vendor/", static / "vendor")):
        for entry in folder.iterdir():
            kind = _TYPES.get(entry.name.rpartition(".")[2])
            if kind is not None and entry.is_file():
                content = entry.read_bytes()
                tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
                files[prefix + entry.name] = content, kind, tag
    return files
