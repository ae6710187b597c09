"""Sources: where proxies find the keys of rules in a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.rules.aliases import ADDRESSES

ADDRESS, METHOD, PATH, HOST, HEADER, COOKIE = (
    *("address", "method", "path", "host", "header", "cookie"),
)


@dataclass(frozen=True, slots=True)
class Source:
    """What a key is of a request. Of a ``secret``, Penstock knows a hash only."""

    kind: str
    name: str = ""
    secret: bool = False


def sources_of(dimensions: Iterable[str]) -> dict[str, Source]:
    """``NAME=SOURCE``, as for ``penstock serve``, where a proxy can read them."""
    out: dict[str, Source] = {}
    kinds = {
        "header": (HEADER, False), "client-header": (HEADER, False),
        "secret-header": (HEADER, True), "cookie": (COOKIE, True),
    }  # fmt: skip
    for text in dimensions:
        name, _, source = text.partition("=")
        kind, _, argument = source.partition(":")
        if not name or not argument or kind not in kinds:
            known = ", ".join(f"{each}:..." for each in kinds)
            raise ValueError(
                "a dimension to export is NAME=SOURCE, such as user=header:x-user-id, not"
                f" {text!r:.100}; a SOURCE is one of {known}"
            )
        what, secret = kinds[kind]
        lower = argument.strip().lower() if what == HEADER else argument.strip()
        out[name] = Source(what, lower, secret)
    return out


def source_of(key: str, own: Mapping[str, Source]) -> Source | None:
    if key in own:
        return own[key]
    if key in ADDRESSES:
        return Source(ADDRESS)
    if key in (METHOD, PATH, HOST):
        return Source(key)
    if key == "api_key":
        return Source(HEADER, "x-api-key", secret=True)
    kind, _, argument = key.partition(":")
    argument = argument.strip()
    if kind == HEADER and argument:
        return Source(HEADER, argument.lower())
    if kind == COOKIE and argument:
        return Source(COOKIE, argument, secret=True)
    return None
