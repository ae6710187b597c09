"""The options of interceptors, for type checkers and editors; `Interceptor` says what they mean."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TypedDict

from penstock.events import Hook
from penstock.gate import Gate
from penstock.integrations.deciding.deciders import Limits
from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.grpc.call import Call, KeyFunction, Status
from penstock.integrations.grpc.exempt import ExemptFunction
from penstock.stores.base import Store

LimitFunction = Callable[[Call], Limits | Awaitable[Limits]]
CostFunction = Callable[[Call], int | Awaitable[int]]
CountWhen = Callable[[Status], bool | Awaitable[bool]]


class CallOptions(TypedDict, total=False):
    """Of one interceptor."""

    gate: Gate | str | Path | None
    key: KeyFunction
    limit: Limits | LimitFunction
    cost: int | CostFunction
    exempt: Iterable[str] | ExemptFunction
    count_when: CountWhen | None
    shadow: bool
    on_failure: str | None
    store: Store | None
    name: str
    domain: str | None
    dimensions: Mapping[str, Dimension[Call] | str] | None
    watch: bool
    trusted: Iterable[str]
    hops: int
    forwarded: str
    hook: Hook | None
