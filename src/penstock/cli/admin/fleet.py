"""StoreClient: the admin API of a fleet, answered from its store, without any instance."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from penstock.admin.author import AUTHOR
from penstock.admin.endpoints import ENDPOINTS
from penstock.admin.errors import RequestRejected
from penstock.admin.handlers import Change, Handlers
from penstock.admin.queries import Sources
from penstock.admin.reading import parameters_of
from penstock.cli.top_source import AdminUnavailable
from penstock.errors import StoreError
from penstock.kv import AsyncKeyValue
from penstock.running.store_control import StoreControl
from penstock.wires.http.messages import HttpRequest, HttpResponse

# What the store knows. Counters, refusals, logs and levels are those of instances.
_PATHS = (
    *("/", "/openapi.json", "/rlconfig", "/v1/rules", "/v1/instances", "/v1/changes", "/v1/undo"),
    *("/v1/switches", "/v1/mode", "/v1/overrides", "/v1/allow", "/v1/deny", "/v1/log"),
)
_ENDPOINTS = {(each.method, each.path): each for each in ENDPOINTS}
_ELSEWHERE = "the store does not know this: ask an instance, with --admin URL instead of --control"


class StoreClient:
    """``who`` is the author of changes."""

    def __init__(self, control: str, who: str) -> None:
        self._control = control
        self._who = who

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return asyncio.run(self._ask(method, path, body))

    def text(self, path: str) -> str:
        answer = self.ask("GET", path)
        return answer if isinstance(answer, str) else json.dumps(answer) + "\n"

    async def _ask(self, method: str, path: str, body: Any) -> Any:
        AUTHOR.set(self._who)
        where, _, query = path.partition("?")
        endpoint = _ENDPOINTS.get((method, where))
        if endpoint is None:
            raise AdminUnavailable(f"there is nothing at {where}: see penstock admin get /")
        if where not in _PATHS:
            raise AdminUnavailable(_ELSEWHERE)
        request = HttpRequest(None)
        request.method, request.path, request.query = method, where, query
        request.body = b"" if body is None else json.dumps(body).encode()
        async with AsyncKeyValue(self._control) as kv:
            control = StoreControl(kv, self._control)
            sources = Sources(
                changes=control.changes, undo=control.undo, notes=control.notes,
                instances=control.instances,
            )  # fmt: skip
            try:
                handler = getattr(Handlers(control, sources), endpoint.does)
                result = await handler(parameters_of(endpoint, request))
            except RequestRejected as rejected:
                raise AdminUnavailable(rejected.message) from None
            except StoreError as error:
                raise AdminUnavailable(f"the control store is away: {error}") from None
        return _content(result)


def _content(result: Any) -> Any:
    if isinstance(result, HttpResponse):
        return result.body.decode()
    if isinstance(result, Change):
        content = result.content()
        content.pop("workers", None)  # there are none here
        return content
    return result
