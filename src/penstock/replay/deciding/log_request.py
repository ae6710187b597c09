"""LogRequest: a line of a log as the request that middleware would have seen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property

from penstock.integrations.deciding.identity import NOBODY_TRUSTED, Trust
from penstock.integrations.deciding.paths import decoded, plain_raw
from penstock.integrations.deciding.request import Request

_ESCAPE = re.compile(rb'\\(?:x([0-9A-Fa-f]{2})|(["\\]))')
_ABSOLUTE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#]*")
_ASSET = re.compile(
    rb"\.(?:js|mjs|css|map|png|jpe?g|gif|svg|ico|webp|avif|woff2?|ttf|otf|eot|mp4|webm)$", re.I
)


class LogRequest(Request):
    """``read(name)`` gives the text of a field: see `penstock.replay.reading.formats`."""

    def __init__(self, read: Callable[[str], str | None], trust: Trust = NOBODY_TRUSTED) -> None:
        self._read = read
        self.trust = trust
        self.native = None

    @property
    def method(self) -> str:  # type: ignore[override]
        return self._read("method") or "-"

    @property
    def _raw_path(self) -> str:
        target = self._read("target") or "/"
        match = _ABSOLUTE.match(target)
        if match:
            target = target[match.end() :] or "/"
        return target.partition("?")[0]

    @property
    def path(self) -> str:  # type: ignore[override]
        return decoded(self._raw_path)

    @property
    def rule_path(self) -> str:
        return plain_raw(self._raw_path)

    @property
    def peer(self) -> str | None:
        peer = self._read("peer")
        return None if peer is None or peer.startswith("unix:") else peer

    def header(self, name: str) -> str | None:
        name = name.lower()
        if name == "host":
            return self._read("host") or self._read("header:host")
        return self._read(f"header:{name}")

    @property
    def user(self) -> str | None:
        return self._read("user")

    @cached_property
    def cookies(self) -> Mapping[str, str]:
        return _Cookies(self)

    def field(self, name: str) -> str | None:
        """A field of JSON lines or CSV, by its own name."""
        return self._read(f"field:{name}")


class _Cookies(dict[str, str]):
    """The cookies that the log has one by one, else those of the header."""

    def __init__(self, request: LogRequest) -> None:
        self._request = request
        super().__init__(Request.cookies.func(request))  # type: ignore[attr-defined]

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        logged = self._request._read(f"cookie:{name}")
        return logged if logged is not None else super().get(name, default)


def text_of(raw: bytes | None, kind: str, *, latin: bool = False) -> str | None:
    """The text of a field, with the escapes of its format taken away."""
    if raw is None:
        return None
    if b"\\" in raw:
        if kind == "json":
            try:
                text: str = json.loads(b'"' + raw + b'"', strict=False)
                return text.encode("utf-8", "surrogatepass").decode("latin-1") if latin else text
            except ValueError:
                pass
        elif kind == "text":
            raw = _ESCAPE.sub(
                lambda match: bytes([int(match[1], 16)]) if match[1] else match[2], raw
            )
    if kind == "csv":
        raw = raw.replace(b'""', b'"')
    return raw.decode("latin-1") if latin else raw.decode("utf-8", "surrogateescape")


def is_asset(raw: bytes | None) -> bool:
    """Whether a path looks like a part of a page: a script, a picture, a font."""
    return raw is not None and _ASSET.search(raw) is not None
