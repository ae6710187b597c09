"""AdminApi: the handler of the admin port. Who may, what is done, and the record of it.

Access is looked at before the path: without it, all that can be learnt is that a token is
needed. Changes are made one after the other, and go on to their end and into the record
even if whoever asked has hung up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import Any

from penstock.admin import audit
from penstock.admin.access import UNIX_PEER, Access, Caller, Denied
from penstock.admin.audit import AuditError, AuditLog
from penstock.admin.control import Control
from penstock.admin.endpoints import ENDPOINTS, Endpoint
from penstock.admin.errors import Refused
from penstock.admin.handlers import Change, Handlers, Sources
from penstock.admin.reading import asked_of
from penstock.clock import MONOTONIC, Clock
from penstock.limiter import Limiter
from penstock.stores.memory import MemoryStore
from penstock.wires.http.messages import HttpAnswer, HttpRequest, as_error, as_json
from penstock.wires.http.routes import Routes

# Failures of strangers that are recorded: nobody may fill the disk with them.
MOST_DENIALS = "600/minute"
# Nothing here is for a cache or for a browser to guess at.
_SEALED = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]

logger = logging.getLogger("penstock.admin")


class AdminApi:
    """For an `HttpServer`. ``clock`` is for the uptime and for how often failures are recorded."""

    def __init__(
        self,
        control: Control,
        *,
        access: Access | None = None,
        audit: AuditLog | None = None,
        sources: Sources | None = None,
        clock: Clock = MONOTONIC,
    ) -> None:
        self.access = access or Access()
        self.audit = audit or AuditLog()
        self._handlers = Handlers(control, sources or Sources(), clock)
        self._endpoints = {(each.method, each.path): each for each in ENDPOINTS}
        paths: dict[str, dict[str, Any]] = {}
        for each in ENDPOINTS:
            paths.setdefault(each.path, {})[each.method] = None
        self._nowhere = Routes(paths)  # says 404 or 405; what is somewhere does not get to it
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[HttpAnswer]] = set()
        self._denials = Limiter(MOST_DENIALS, MemoryStore(1, clock))
        self._left_out = 0

    def __call__(self, request: HttpRequest) -> HttpAnswer | Awaitable[HttpAnswer]:
        try:
            caller = self.access.admit(request)
        except Denied as denied:
            self._record_denial(request, denied)
            return _sealed(denied.answer())
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = self._endpoints.get((method, request.path))
        if endpoint is None:
            return self._nowhere(request)
        return self._answer(endpoint, request, caller)

    async def _answer(self, endpoint: Endpoint, request: HttpRequest, caller: Caller) -> HttpAnswer:
        if endpoint.action is not None:
            change = asyncio.create_task(self._change(endpoint, request, caller))
            self._changes.add(change)
            change.add_done_callback(self._changes.discard)
            return _sealed(await asyncio.shield(change))
        try:
            found = await getattr(self._handlers, endpoint.does)(asked_of(endpoint, request))
        except Refused as refused:
            return _sealed(refused.answer())
        return _sealed(found if isinstance(found, HttpAnswer) else as_json(found))

    async def _change(self, endpoint: Endpoint, request: HttpRequest, caller: Caller) -> HttpAnswer:
        entry: dict[str, Any] = {"peer": caller.peer, "who": caller.name}
        if caller.digest is not None:
            entry["digest"] = caller.digest
        entry["action"] = endpoint.action
        async with self._changing:
            answer = await self._done(endpoint, request, entry)
            entry["status"] = answer.status
            try:
                await self._record(entry)
            except AuditError as error:
                if answer.status == 200:
                    return as_error(500, f"it was done, but {error}")
            return answer

    async def _done(
        self, endpoint: Endpoint, request: HttpRequest, entry: dict[str, Any]
    ) -> HttpAnswer:
        """The change itself; ``entry`` is told what came of it."""
        try:
            asked = asked_of(endpoint, request)
            entry["asked"] = dict(asked)
            change: Change = await getattr(self._handlers, endpoint.does)(asked)
        except Refused as refused:
            result = audit.REFUSED if refused.status < 500 else audit.FAILED
            entry.update(result=result, error=refused.message, **refused.more)
            return refused.answer()
        except Exception as error:
            logger.exception("%s failed", endpoint.action)
            entry.update(result=audit.FAILED, error=type(error).__name__)
            return as_error(500, "internal error: see the log")
        entry.update(before=change.before, after=change.after, result=audit.DONE, **change.more)
        return as_json(change.answer())

    def _record_denial(self, request: HttpRequest, denied: Denied) -> None:
        if denied.silent or not self._denials.hit("denials"):
            self._left_out += 1
            return
        entry: dict[str, Any] = {
            "peer": request.peer or UNIX_PEER,
            "who": None,
            "action": "access",
            "asked": {"method": request.method, "path": request.path[:200]},
            "result": audit.REFUSED,
            "status": denied.status,
            "error": denied.message,
        }
        if self._left_out:
            entry["left_out"] = self._left_out
            self._left_out = 0
        with contextlib.suppress(AuditError):  # then the log has it
            self.audit.write(entry)

    async def _record(self, entry: dict[str, Any]) -> None:
        if self.audit.sync:
            await asyncio.to_thread(self.audit.write, entry)  # the disk takes its time
        else:
            self.audit.write(entry)

    async def settle(self) -> None:
        """Let changes that are under way come to their end."""
        while self._changes:
            await asyncio.wait([*self._changes])


def _sealed(answer: HttpAnswer) -> HttpAnswer:
    answer.headers += _SEALED
    return answer
