"""AdminApi: the handler of the admin port: access, the endpoint, and the audit log.

Access is checked before the path: without it, a client only learns that a token is required.
Changes are made one at a time, and are completed and recorded even if the client has
disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.admin import audit
from penstock.admin.access import UNIX_PEER, Access, Caller, Denied
from penstock.admin.audit import AuditError, AuditLog
from penstock.admin.author import AUTHOR
from penstock.admin.control import Control
from penstock.admin.endpoints import ENDPOINTS, Endpoint
from penstock.admin.errors import RequestRejected
from penstock.admin.handlers import Change, Handlers, Sources
from penstock.admin.reading import parameters_of
from penstock.admin.sessions import set_cookie
from penstock.clock import MONOTONIC, Clock
from penstock.limiter import Limiter
from penstock.stores.memory import MemoryStore
from penstock.wires.http.messages import HttpRequest, HttpResponse, as_error, as_json
from penstock.wires.http.routes import Routes

# How many denials are recorded: strangers must not be able to fill the disk.
MOST_DENIALS = "600/minute"
SESSION = "/v1/session"
# Answers with a file of the web page, or None if it has none at this path.
Page = Callable[[HttpRequest], HttpResponse | None]
# Responses must not be cached, nor their type be guessed by a browser.
_SEALED = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]

logger = logging.getLogger("penstock.admin")


class AdminApi:
    """For an `HttpServer`. ``clock`` is for the uptime and for how often failures are recorded.

    ``page`` answers requests for the files of the web page, and None to all others. ``tls``: the
    server has a certificate, so a session's cookie is sent over TLS only.
    """

    def __init__(
        self,
        control: Control,
        *,
        access: Access | None = None,
        audit: AuditLog | None = None,
        sources: Sources | None = None,
        page: Page | None = None,
        tls: bool = False,
        clock: Clock = MONOTONIC,
    ) -> None:
        self.access = access or Access()
        self.audit = audit or AuditLog()
        self._page = page
        self._tls = tls
        self._handlers = Handlers(control, sources or Sources(), clock)
        self._endpoints = {(each.method, each.path): each for each in ENDPOINTS}
        paths: dict[str, dict[str, Any]] = {}
        for each in ENDPOINTS:
            paths.setdefault(each.path, {})[each.method] = None
        self._not_found = Routes(paths)  # answers 404 or 405; known paths do not get here
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[HttpResponse]] = set()
        self._denials = Limiter(MOST_DENIALS, MemoryStore(1, clock), enabled=True)
        self._left_out = 0

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        file = None if self._page is None else self._page(request)
        if file is not None:  # nothing in it is secret, and without it nobody can log in
            return file
        try:
            if request.path == SESSION and request.method == "POST":
                return self._log_in(request)
            caller = self.access.admit(request)
        except Denied as denied:
            self._record_denial(request, denied)
            return _sealed(denied.response())
        if request.path == SESSION and request.method in ("GET", "DELETE"):
            return self._session(request, caller)
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = self._endpoints.get((method, request.path))
        if endpoint is None:
            return self._not_found(request)
        return self._respond(endpoint, request, caller)

    async def _respond(
        self, endpoint: Endpoint, request: HttpRequest, caller: Caller
    ) -> HttpResponse:
        if endpoint.action is not None:
            if not caller.may_change:
                return _sealed(self._read_only(endpoint, request, caller))
            change = asyncio.create_task(self._change(endpoint, request, caller))
            self._changes.add(change)
            change.add_done_callback(self._changes.discard)
            return _sealed(await asyncio.shield(change))
        try:
            result = await getattr(self._handlers, endpoint.does)(parameters_of(endpoint, request))
        except RequestRejected as rejected:
            return _sealed(rejected.response())
        return _sealed(result if isinstance(result, HttpResponse) else as_json(result))

    # Sessions ------------------------------------------------------------------------------

    def _log_in(self, request: HttpRequest) -> HttpResponse:
        try:
            secret = parameters_of(self._endpoints["POST", SESSION], request)["token"]
        except RequestRejected as rejected:
            return _sealed(rejected.response())
        session_id = self.access.log_in(request, secret)
        return _sealed(as_json({}, headers=[set_cookie(session_id, self._tls)]))

    def _session(self, request: HttpRequest, caller: Caller) -> HttpResponse:
        if request.method == "DELETE":
            self.access.log_out(request)
            return _sealed(as_json({}, headers=[set_cookie("", self._tls)]))
        session = caller.session
        left = None if session is None else self.access.sessions.left(session)
        return _sealed(as_json({"name": caller.name, "role": caller.role, "left": left}))

    def _read_only(self, endpoint: Endpoint, request: HttpRequest, caller: Caller) -> HttpResponse:
        denied = Denied(403, f"the token {caller.name} may read, but change nothing")
        self._record_denial(request, denied, caller.name)
        return denied.response()

    # Changes -------------------------------------------------------------------------------

    async def _change(
        self, endpoint: Endpoint, request: HttpRequest, caller: Caller
    ) -> HttpResponse:
        entry: dict[str, Any] = {"peer": caller.peer, "who": caller.name}
        if caller.digest is not None:
            entry["digest"] = caller.digest
        entry["action"] = endpoint.action
        AUTHOR.set(caller.name)
        async with self._changing:
            response = await self._make_change(endpoint, request, entry)
            entry["status"] = response.status
            try:
                await self._record(entry)
            except AuditError as error:
                if response.status == 200:
                    return as_error(500, f"the change was made, but {error}")
            return response

    async def _make_change(
        self, endpoint: Endpoint, request: HttpRequest, entry: dict[str, Any]
    ) -> HttpResponse:
        """Make the change, and put its result into ``entry``."""
        try:
            parameters = parameters_of(endpoint, request)
            entry["asked"] = dict(parameters)
            change: Change = await getattr(self._handlers, endpoint.does)(parameters)
        except RequestRejected as rejected:
            result = audit.REFUSED if rejected.status < 500 else audit.FAILED
            entry.update(result=result, error=rejected.message, **rejected.more)
            return rejected.response()
        except Exception as error:
            logger.exception("%s failed", endpoint.action)
            entry.update(result=audit.FAILED, error=type(error).__name__)
            return as_error(500, "internal error: see the log")
        entry.update(before=change.before, after=change.after, result=audit.DONE, **change.more)
        return as_json(change.content())

    def _record_denial(self, request: HttpRequest, denied: Denied, who: str | None = None) -> None:
        if denied.silent or not self._denials.hit("denials"):
            self._left_out += 1
            return
        entry: dict[str, Any] = {
            "peer": request.peer or UNIX_PEER,
            "who": who,
            "action": "access",
            "asked": {"method": request.method, "path": request.path[:200]},
            "result": audit.REFUSED,
            "status": denied.status,
            "error": denied.message,
        }
        if self._left_out:
            entry["left_out"] = self._left_out
            self._left_out = 0
        with contextlib.suppress(AuditError):  # it is in the log then
            self.audit.write(entry)

    async def _record(self, entry: dict[str, Any]) -> None:
        if self.audit.sync:
            await asyncio.to_thread(self.audit.write, entry)  # the disk may be slow
        else:
            self.audit.write(entry)

    async def settle(self) -> None:
        """Wait for changes in progress."""
        while self._changes:
            await asyncio.wait([*self._changes])


def _sealed(response: HttpResponse) -> HttpResponse:
    response.headers += _SEALED
    return response
