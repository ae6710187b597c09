"""The exceptions that a limit raises in FastAPI, and the responses to them and to our errors."""

from __future__ import annotations

from fastapi import HTTPException, Request, Response
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.websockets import WebSocketDisconnect

from penstock.integrations.asgi.types import Scope
from penstock.integrations.deciding.applied_limits import AppliedLimits, with_fields
from penstock.integrations.deciding.error_responses import ANSWERED, answer_to
from penstock.integrations.deciding.request import Response as Answered
from penstock.integrations.deciding.responses import Answer

# In the scope: Starlette's exception handlers, by class.
_HANDLERS = "starlette.exception_handlers"
# In the scope: all limits of the route that were checked, if there is no middleware of ours.
DEPENDENCIES = "penstock.dependencies"


class RateLimited(HTTPException):
    """Raised by a limit. An exception handler of your own takes precedence over ours."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status, "Rate limit exceeded", dict(answer.headers))
        self.answer = answer


class AnsweredInstead(Exception):
    """Raised by a limit with a ``fallback`` or a ``defer``, to send their response."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def handle_errors(scope: Scope) -> None:
    """Have our errors answered where the application has no handler for them."""
    handlers = scope.get(_HANDLERS)
    if handlers is not None:
        for kind in ANSWERED:
            if handlers[0].keys().isdisjoint(kind.__mro__):
                handlers[0][kind] = _answer_error


def handle_refusals(scope: Scope) -> None:
    handlers = scope.get(_HANDLERS)
    if handlers is not None:
        handlers[0].setdefault(RateLimited, _answer_refusal)
        handlers[0].setdefault(AnsweredInstead, _answer_instead)


async def _answer_refusal(request: Request, error: Exception) -> Response:
    """Without it, FastAPI would send ``{"detail": ...}``."""
    assert isinstance(error, RateLimited)
    return as_response(error.answer)


async def _answer_instead(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnsweredInstead)
    return error.response


async def _answer_error(request: HTTPConnection, error: Exception) -> Response:
    """The response to one of our errors. Handlers are the application's: for all its routes."""
    scope = request.scope
    applied: AppliedLimits | None = scope.get(DEPENDENCIES)
    if applied is None or scope["type"] != "http":  # a route without a limit, or a websocket
        raise error
    answer = answer_to(error, applied, request.headers.get("accept", ""))
    assert answer is not None
    answer.headers[:] = with_fields(answer.headers, applied)
    return as_response(answer)


def as_response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, dict(answer.headers))


def response_to(error: Exception) -> Answered:
    """The response that FastAPI will make."""
    if isinstance(error, StarletteHTTPException):
        return Answered(error.status_code, dict(error.headers or {}))
    answer = answer_to(error, [], "")
    return Answered(500, {}, error) if answer is None else Answered(answer.status, {})


def is_disconnect(error: BaseException | None) -> bool:
    """Whether the client left while it was being answered."""
    while error is not None:
        if isinstance(error, (ClientDisconnect, WebSocketDisconnect)):
            return True
        error = error.__cause__ or error.__context__
    return False
