"""The options of interceptors. `Interceptor` documents them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TypedDict

from penstock.events import Hook
from penstock.gate import Gate
from penstock.integrations.deciding.deciders import Limits
from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.deciding.exempt import matcher
from penstock.integrations.grpc.call import Call, KeyFunction, Status
from penstock.stores.base import Store

ExemptFunction = Callable[[Call], bool | Awaitable[bool]]
LimitFunction = Callable[[Call], Limits | Awaitable[Limits]]
CostFunction = Callable[[Call], int | Awaitable[int]]
CountWhen = Callable[[Status], bool | Awaitable[bool]]

# Called by machines, not by users.
EXEMPT = ("grpc.health.v1.Health", "grpc.reflection.*")


class CallOptions(TypedDict, total=False):
    """For type checkers and editors."""

    gate: Gate | str | Path | None
    key: KeyFunction
    limit: Limits | LimitFunction
    cost: int | CostFunction
    exempt: Iterable[str] | ExemptFunction
    count_when: CountWhen | None
    shadow: bool
    on_failure: str | None
    store: Store | str | None
    name: str
    domain: str | None
    dimensions: Mapping[str, Dimension[Call] | str] | None
    watch: bool
    trusted: Iterable[str]
    hops: int
    forwarded: str
    hook: Hook | None
    enabled: bool | None
    from_env: bool


def as_exempt(exempt: Iterable[str] | ExemptFunction) -> ExemptFunction:
    """``"/shop.Orders/Place"`` is that method, ``"shop.Orders"`` all methods of that service,
    and ``"shop.*"`` all services whose names begin with ``shop.``.
    """
    if callable(exempt):
        return exempt
    if isinstance(exempt, (str, bytes)):
        raise TypeError(f"exempt is a list of names, such as [{exempt!r}], or a function")
    is_named = matcher([_as_path(name) for name in exempt])
    return lambda call: is_named(call.method)


def _as_path(name: object) -> str:
    """The path of a method, or a pattern for several paths."""
    if isinstance(name, str) and name.strip("/*") and "*" not in name[:-1]:
        if name.startswith("/") and name.count("/") == 2:
            return name
        if "/" not in name:
            return f"/{name}" if name.endswith("*") else f"/{name}/*"
    raise ValueError(
        "an exempt name is a method, '/shop.Orders/Place', a service, 'shop.Orders', or "
        f"several, 'shop.*', not {name!r:.100}"
    )
