"""Dimensions that are written as text, for the proxy and the service: ``user=header:x-user-id``.

Anyone can send a header. What a rule counts by, or has on a list, must not be up to the client,
so ``header:`` is accepted from trusted proxies only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.deciding.keys import hashed, header_name, trusted_header
from penstock.integrations.deciding.request import Request


def _header(name: str) -> Dimension[Request]:
    lower_name = header_name(name)
    return lambda request: trusted_header(request, lower_name)


def _client_header(name: str) -> Dimension[Request]:
    lower_name = header_name(name)
    return lambda request: request.first(lower_name)


def _secret_header(name: str) -> Dimension[Request]:
    lower_name = header_name(name)
    return lambda request: hashed(request.first(lower_name))


def _cookie(name: str) -> Dimension[Request]:
    return lambda request: hashed(request.cookies.get(name))


def _text(value: str) -> Dimension[Request]:
    return lambda request: value


# The reference page of the service explains them.
SOURCES: Mapping[str, Callable[[str], Dimension[Request]]] = {
    "header": _header,
    "client-header": _client_header,
    "secret-header": _secret_header,
    "cookie": _cookie,
    "text": _text,
}


def parse_dimensions(texts: Iterable[str]) -> dict[str, Dimension[Request]]:
    """From ``NAME=SOURCE`` to functions by name; `ValueError` if one cannot be read."""
    dimensions: dict[str, Dimension[Request]] = {}
    for text in texts:
        name, equals, source = text.partition("=")
        kind, colon, argument = source.partition(":")
        if not (name and equals and colon and argument) or kind not in SOURCES:
            kinds = ", ".join(f"{known}:..." for known in SOURCES)
            raise ValueError(
                f"dimension is NAME=SOURCE, such as user=header:x-user-id, not {text!r:.100};"
                f" a SOURCE is one of {kinds}"
            )
        if name in dimensions:
            raise ValueError(f"dimension {name!r:.100} is given twice")
        dimensions[name] = SOURCES[kind](argument)
    return dimensions
