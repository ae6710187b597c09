"""A limit as a dependency, and the exception that it raises."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Unpack

from fastapi import HTTPException, Request, Response, WebSocketException
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.websockets import WebSocketDisconnect

from penstock.integrations.asgi.client import WatchedClient
from penstock.integrations.asgi.limit import POLICY_VIOLATION
from penstock.integrations.asgi.request import AsgiRequest
from penstock.integrations.deciding.deciders import Limits
from penstock.integrations.deciding.http import Answer
from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint, LimitFunction
from penstock.integrations.deciding.keys import by_ip, combined
from penstock.integrations.deciding.options import LimitOptions, check_options
from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.pending import PENDING, abandoned, withdraw
from penstock.integrations.deciding.request import Response as Answered
from penstock.limit import Limit, as_limit

# Where Starlette keeps the handlers of exceptions, by class, for the request.
_HANDLERS = "starlette.exception_handlers"
# In the scope: all dependencies that were asked, where nobody further out tells of them.
_ASKED = "penstock.asked"


class RateLimited(HTTPException):
    """Raised by the dependency. An exception handler of your own for it goes before ours."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status, "Rate limit exceeded", dict(answer.headers))
        self.answer = answer


def limit(
    limit: Limits | LimitFunction = None, **options: Unpack[LimitOptions]
) -> Callable[[HTTPConnection, Response], Any]:
    """A dependency that refuses with 429; a websocket is closed with 1008.

    Takes all that `HttpCheckpoint` does. Every call of ``limit`` counts for itself: to share a
    limit between routes, give them one and the same dependency. In a ``store`` of yours they
    are told apart by ``name``, which it needs then. Without a name, clients are told the
    limit's own text.
    """
    check_options("limit", options, LimitOptions)
    if options.get("store") is not None and "name" not in options:
        raise TypeError("a limit in a store of yours needs a name: limit(..., name='search')")
    if "name" in options and options.get("gate") is None:
        name, key = options["name"], options.get("key", by_ip)
        options["key"] = combined(lambda request: name, key)
    elif isinstance(limit, (str, Limit)):  # not "default": the middleware's may be told beside it
        options["name"] = as_limit(limit).counted_as
    checkpoint = HttpCheckpoint(asynchronous=True, limit=limit, **options)

    async def decide(scope: Any) -> tuple[Outcome, bool] | None:
        """The outcome, and whether somebody further out tells of it."""
        request = AsgiRequest(scope)
        outcome = checkpoint.quick(request)
        if outcome is None:
            outcome = await checkpoint.check_async(request)
            if outcome is None:
                return None
        scope["penstock"] = outcome
        pending = scope.get(PENDING)
        decided = scope.setdefault(_ASKED, []) if pending is None else pending
        decided.append((checkpoint, outcome))
        if not outcome.allowed:
            for waiting in withdraw(decided[:-1]):
                await waiting
            raise _refusal(checkpoint, outcome, request)
        return outcome, pending is not None

    # FastAPI reads these types when it runs, and finds them by name in this module.
    async def rate_limit(connection: HTTPConnection, response: Response) -> None:
        result = await decide(connection.scope)
        if result is not None and not result[1]:
            for name, value in checkpoint.headers(result[0]):
                response.headers[name] = value

    # One that stays until the end costs some 20 us more: only for who wants to see the end.
    async def settled(connection: HTTPConnection, response: Response) -> AsyncIterator[None]:
        result = await decide(connection.scope)
        if result is None or result[1]:
            yield
            return
        outcome = result[0]
        for name, value in checkpoint.headers(outcome):
            response.headers[name] = value
        # The handler is given this very request, and reads its body by it.
        client = connection._receive = WatchedClient(connection._receive)  # type: ignore[attr-defined]  # of both kinds
        try:
            yield
        except Exception as error:
            answered = _answered(error)
            if not answered.failed or not (client.absent or _is_disconnect(error)):
                await _settle(checkpoint, outcome, answered)
            raise
        else:
            await _settle(checkpoint, outcome, Answered(response.status_code or 200, {}))
        finally:
            for waiting in abandoned([(checkpoint, outcome)]):  # it was cancelled, or left
                await waiting

    return rate_limit if checkpoint.count_when is None else settled


def _refusal(checkpoint: HttpCheckpoint, outcome: Outcome, request: AsgiRequest) -> Exception:
    scope = request.native
    if scope["type"] == "websocket":
        return WebSocketException(POLICY_VIOLATION, "Rate limit exceeded")
    handlers = scope.get(_HANDLERS)
    if handlers is not None:
        handlers[0].setdefault(RateLimited, _answer_by_us)
    return RateLimited(checkpoint.answer(outcome, request))


async def _answer_by_us(request: Request, error: Exception) -> Response:
    """Without it, FastAPI would say ``{"detail": ...}``."""
    assert isinstance(error, RateLimited)
    answer = error.answer
    return Response(answer.body, answer.status, dict(answer.headers))


def _answered(error: Exception) -> Answered:
    """What FastAPI will make of it."""
    if isinstance(error, StarletteHTTPException):
        return Answered(error.status_code, dict(error.headers or {}))
    return Answered(500, {}, error)


def _is_disconnect(error: BaseException | None) -> bool:
    """Whether it comes of a client that left while it was being answered."""
    while error is not None:
        if isinstance(error, (ClientDisconnect, WebSocketDisconnect)):
            return True
        error = error.__cause__ or error.__context__
    return False


async def _settle(checkpoint: HttpCheckpoint, outcome: Outcome, response: Answered) -> None:
    waiting = checkpoint.settle(outcome, response)
    if waiting is not None:
        await waiting
