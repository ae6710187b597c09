"""``limit``: a limit for a route, as a decorator or as a dependency."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from itertools import dropwhile
from typing import Annotated, Any, NoReturn, TypeVar, Unpack, cast

from fastapi import Depends, Response, WebSocketException
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from penstock.integrations.asgi.disconnects import WatchedClient
from penstock.integrations.asgi.limit import POLICY_VIOLATION
from penstock.integrations.asgi.request import AsgiRequest, read_request
from penstock.integrations.asgi.route import dependencies_of, view_route_of
from penstock.integrations.asgi.types import Message, Scope
from penstock.integrations.deciding.applied_limits import (
    APPLIED,
    AppliedLimits,
    fields_of,
    keep_counted,
    release,
    settle,
    with_fields,
    withdraw,
)
from penstock.integrations.deciding.checkpoint import yes_or_no
from penstock.integrations.deciding.http_checkpoint import AnyLimits, HttpCheckpoint
from penstock.integrations.deciding.marked_views import (
    EXEMPT,
    OVERRIDE,
    mark,
    mark_of,
    some_are_marked,
)
from penstock.integrations.deciding.misuse import check_limit_function, without_limit
from penstock.integrations.deciding.options import RouteOptions, check_options
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.refusals import KEPT_BODY, Defer, Deferred, Refusals
from penstock.integrations.deciding.request import Response as Answered
from penstock.integrations.deciding.responses import FALLBACK
from penstock.integrations.deciding.views import begin_keys
from penstock.integrations.deciding.waiting import finish_async
from penstock.integrations.fastapi.decorating import Served, with_dependency
from penstock.integrations.fastapi.exceptions import (
    DEPENDENCIES,
    AnsweredInstead,
    RateLimited,
    as_response,
    handle_errors,
    handle_refusals,
    is_disconnect,
    response_to,
)
from penstock.integrations.fastapi.misuse import (
    NotCalled,
    check_handler,
    without_depends,
)
from penstock.limits import Limit, limits_of

Handler = TypeVar("Handler", bound=Callable[..., Any])


def limit(
    limit: Annotated[AnyLimits, Depends(NotCalled())] = None, **options: Unpack[RouteOptions]
) -> RouteLimit:
    """A limit for a route: a decorator below ``@app.get``, or a dependency.

    Takes the options of `HttpCheckpoint`, and

    - ``fallback``: a function of FastAPI's request that answers instead of 429
    - ``defer``, ``defer_body``: see `penstock.integrations.deciding.refusals`
    - ``override``: apply in place of the limits of the middleware, the application and routers

    Every call of ``limit`` counts on its own: to share a limit between routes, give them the same
    object. In a ``store`` of yours limits are told apart by ``name``, which is required then.
    Without a name, headers show the limit's text.

    Handlers may raise `LimitExceeded`, `NoSlot` and `CircuitOpen`: they become 429, 503 or 504,
    unless you have an exception handler for them.
    """
    check_options("limit", options, RouteOptions)
    if callable(limit):
        check_limit_function(limit)
    if options.get("store") is not None and "name" not in options:
        raise TypeError("a limit in a store of yours needs a name: limit(..., name='search')")
    merged: dict[str, Any] = {**options, "limit": limit}
    if "name" in options and options.get("gate") is None:
        begin_keys(merged, lambda request: options["name"])
    elif isinstance(limit, (str, Limit)):  # not "default", the name of the middleware's limit
        merged["name"] = limits_of(limit)[0].counted_as
    return RouteLimit(**merged)


class RouteLimit:
    """What `limit` returns. As a decorator it adds itself to the handler as a dependency."""

    def __init__(
        self,
        *,
        fallback: Callable[..., Any] | None = None,
        defer: Defer | None = None,
        defer_body: int = KEPT_BODY,
        override: bool = False,
        **options: Any,
    ) -> None:
        self._checkpoint = HttpCheckpoint(asynchronous=True, **options)
        self._refusals = Refusals(
            self._checkpoint, fallback, defer, defer_body, "a function of the request"
        )
        if yes_or_no(override, "override") and self._checkpoint.enabled:
            mark(self, OVERRIDE)
        # FastAPI reads here what the parameters are, and what kind of function it is.
        # A generator takes some 20 us more: only with a count_when, or rules that may have slots.
        simple = self._checkpoint.count_when is None and options.get("gate") is None
        self.__wrapped__: Callable[..., Any] = self._check if simple else self._settled

    def __call__(self, handler: Handler | None = None, /, **values: Any) -> Handler:
        """Decorate a handler. FastAPI calls it as a dependency, with values by name."""
        if values:
            return cast(Handler, self.__wrapped__(**values))
        check_handler(handler)
        return cast(Handler, with_dependency(cast(Handler, handler), self))

    def reset(self) -> None:
        """Forget all counts, as between tests. A store that you gave is cleared completely."""
        self._checkpoint.reset()

    @property
    def dependency(self) -> NoReturn:
        """FastAPI takes this from a ``Depends``."""
        raise without_depends()

    # FastAPI reads the types of these when it runs, and finds them by name in this module ------

    async def _check(self, connection: HTTPConnection, response: Response) -> Any:
        """What was counted, unless a middleware adds the headers and settles."""
        scope = connection.scope
        if scope.get("endpoint") is self:
            raise without_limit(self)
        applied: AppliedLimits | None = scope.get(APPLIED)
        alone = applied is None
        if applied is None:
            applied = scope.setdefault(DEPENDENCIES, [])
            handle_errors(scope)
        request = AsgiRequest(scope)
        exempt = some_are_marked() and self._passes_over(scope)
        outcome = None if exempt else self._checkpoint.quick(request)
        if outcome is None:
            outcome = await finish_async(self._checkpoint.flow(request, exempt))
            if outcome is None:
                return None
        scope["penstock"] = outcome
        applied.append((self._checkpoint, outcome))
        if not outcome.allowed:
            for waiting in withdraw(applied[:-1]):
                await waiting
            raise await self._refusal(outcome, request, connection, applied)
        if not alone:
            return None
        for name, value in fields_of(applied):
            response.headers[name] = value
        return Served(applied)

    async def _settled(self, connection: HTTPConnection, response: Response) -> AsyncIterator[Any]:
        served: Served | None = await self._check(connection, response)
        if served is None:
            yield None
            return
        # The handler gets this same request, and reads its body through it.
        client = connection._receive = WatchedClient(connection._receive)  # type: ignore[attr-defined]  # of both kinds
        applied = [served.last]
        try:
            yield served
        except Exception as error:
            absent = client.absent or is_disconnect(error)
            for waiting in settle(applied, response_to(error), absent):
                await waiting
            raise
        else:
            status = served.status or response.status_code or 200
            for waiting in settle(applied, Answered(status, {}), False):
                await waiting
        finally:
            for waiting in (*keep_counted(applied), *release(applied)):  # also if it was cancelled
                await waiting

    # -------------------------------------------------------------------------------------------

    def _passes_over(self, scope: Scope) -> bool:
        """Whether the route is exempt, or a limit further in overrides this one."""
        route = view_route_of(scope)
        calls = dependencies_of(getattr(route, "dependant", None))
        inner = dropwhile(lambda call: call is not self, calls)
        next(inner, None)
        return mark_of(getattr(route, "endpoint", None)) == EXEMPT or any(
            mark_of(call) == OVERRIDE for call in inner
        )

    async def _refusal(
        self,
        outcome: Outcome,
        request: AsgiRequest,
        connection: HTTPConnection,
        applied: AppliedLimits,
    ) -> Exception:
        """The exception to raise. A middleware replaces the headers by those of all limits."""
        scope = request.native
        if scope["type"] == "websocket":
            return WebSocketException(POLICY_VIOLATION, "Rate limit exceeded")
        handle_refusals(scope)
        read = partial(_read, connection)
        answer = await finish_async(self._refusals.flow(outcome, request, read))
        if answer is None:
            response = await self._fall_back(connection)
            for name, value in (FALLBACK, *fields_of(applied)):
                response.headers[name] = value
            return AnsweredInstead(response)
        answer.headers[:] = with_fields(answer.headers, applied)
        if answer.status < 400:  # it was deferred
            return AnsweredInstead(as_response(answer))
        return RateLimited(answer)

    async def _fall_back(self, connection: HTTPConnection) -> Response:
        fallback: Any = self._refusals.fallback
        if iscoroutinefunction(fallback):
            result = await fallback(connection)
        else:
            result = await run_in_threadpool(fallback, connection)
            if isawaitable(result):
                result = await result
        return result if isinstance(result, Response) else JSONResponse(jsonable_encoder(result))


async def _read(connection: HTTPConnection, request: AsgiRequest, longest: int) -> Deferred | None:
    """The whole request. FastAPI has read the body if the handler has a parameter for it."""
    native = cast(Any, connection)
    body: bytes | None = getattr(native, "_body", None)
    if body is not None:

        async def again() -> Message:
            return {"type": "http.request", "body": body}

        return await read_request(request, longest, again)
    if native._stream_consumed:  # it was a form, of which no bytes are kept
        return None
    return await read_request(request, longest, native.receive)
