"""The keys that rules can use: the dimensions of an HTTP request, by name.

``header:NAME`` and ``cookie:NAME`` are dimensions for every name, and ``ip`` is another name of
``remote_address``.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.deciding.keys import hashed
from penstock.integrations.deciding.request import Request
from penstock.rules.aliases import ADDRESS

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
# For a proxy, which knows neither the users nor the routes of the application.
PROXY_DIMENSIONS: Mapping[str, Dimension[Request]] = {
    name: dimension for name, dimension in DIMENSIONS.items() if name not in ("user", "route")
}


def family(name: str) -> Dimension[Request] | None:
    """A dimension with its argument in its name."""
    kind, _, argument = name.partition(":")
    argument = argument.strip()
    if not argument:
        return None
    if kind == "header":
        lower = argument.lower()
        return lambda request: request.first(lower)
    if kind == "cookie":
        return lambda request: hashed(request.cookies.get(argument))
    return None
