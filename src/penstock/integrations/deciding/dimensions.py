"""What rules can be counted by: the dimensions of an HTTP request, by the names of their keys.

``header:NAME`` and ``cookie:NAME`` are dimensions, too, for every name.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.integrations.deciding.descriptors import ADDRESS, Dimension
from penstock.integrations.deciding.keys import hashed
from penstock.integrations.deciding.request import Request

DIMENSIONS: Mapping[str, Dimension[Request]] = {
    ADDRESS: lambda request: request.client or "unknown",
    "method": lambda request: request.method,
    "path": lambda request: request.rule_path,
    "route": lambda request: request.route or "-",
    "host": lambda request: request.host,
    "user": lambda request: request.user,
    # As in `by_api_key`: neither stored nor logged.
    "api_key": lambda request: hashed(request.first("x-api-key")),
}


def family(name: str) -> Dimension[Request] | None:
    """A dimension with its argument in its name."""
    kind, _, argument = name.partition(":")
    wanted = argument.strip()
    if not wanted:
        return None
    if kind == "header":
        lower = wanted.lower()
        return lambda request: request.first(lower)
    if kind == "cookie":
        return lambda request: hashed(request.cookies.get(wanted))
    return None
