"""Handlers wrapped in other handlers of the same kind."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Generator
from functools import wraps
from typing import Any

import grpc

from penstock.integrations.deciding.waiting import Flow
from penstock.integrations.grpc.interceptor import Interceptor, Visit

Behaviour = Callable[..., Any]

# By whether requests stream, and responses.
_KINDS: dict[tuple[bool, bool], tuple[str, Callable[..., Any]]] = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
    (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
}


def wrapped(handler: Any, around: Callable[[Behaviour, bool], Behaviour]) -> Any:
    """``handler`` with another behaviour; ``around`` is told whether responses stream."""
    name, make = _KINDS[bool(handler.request_streaming), bool(handler.response_streaming)]
    return make(
        around(getattr(handler, name), bool(handler.response_streaming)),
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


class InThreads:
    """Behaviours that are plain functions.

    ``ask`` drives a flow and waits for its result; ``tell`` has a flow driven.
    """

    def __init__(
        self,
        interceptor: Interceptor,
        details: grpc.HandlerCallDetails,
        ask: Callable[[Flow[Visit]], Visit],
        tell: Callable[[Flow[None]], Any],
    ) -> None:
        self._interceptor = interceptor
        self._details = details
        self._ask = ask
        self._tell = tell

    def around(self, behaviour: Behaviour, streams: bool) -> Behaviour:
        if not streams:
            return self._around_unary(behaviour)
        if getattr(behaviour, "experimental_non_blocking", False):
            return self._around_non_blocking(behaviour)
        return self._around_stream(behaviour)

    def _enter(self, context: Any) -> Visit | None:
        """None after a refusal. Most contexts raise then; those of grpc.aio do not."""
        visit = self._ask(
            self._interceptor.admit(self._interceptor.call(self._details, context), context)
        )
        if visit.refusal is None:
            return visit
        context.set_trailing_metadata(visit.trailing())
        context.abort(visit.refusal.code, visit.refusal.message)
        return None

    def _leave(self, visit: Visit, error: BaseException | None = None) -> None:
        flow = visit.end(error)
        if flow is not None:
            self._tell(flow)

    def _aborted(self, visit: Visit, error: BaseException) -> bool:
        """The handler raised: whether it was an error of ours, by which the call was ended."""
        try:
            refusal = visit.refusal_for(error)
            if refusal is not None:
                visit.context.abort(refusal.code, refusal.message)
            return refusal is not None
        finally:
            self._leave(visit, error)

    def _around_unary(self, behaviour: Behaviour) -> Behaviour:
        @wraps(behaviour)
        def unary(request: Any, context: Any) -> Any:
            visit = self._enter(context)
            if visit is None:
                return None
            try:
                response = behaviour(request, visit.context)
            except BaseException as error:
                if self._aborted(visit, error):
                    return None
                raise
            self._leave(visit)
            return response

        return unary

    def _around_stream(self, behaviour: Behaviour) -> Behaviour:
        # A generator, so that it is a thread of the pool that decides, in grpc.aio, too.
        @wraps(behaviour)
        def stream(request: Any, context: Any) -> Generator[Any, None, None]:
            visit = self._enter(context)
            if visit is None:
                return
            try:
                responses = behaviour(request, visit.context)
                try:
                    for response in responses:
                        visit.answers()
                        yield response
                finally:
                    close = getattr(responses, "close", None)
                    if close is not None:
                        close()
            except BaseException as error:
                if self._aborted(visit, error):
                    return
                raise
            self._leave(visit)

        return stream

    def _around_non_blocking(self, behaviour: Behaviour) -> Behaviour:
        """For handlers that answer by a callback, as the one that watches health does."""

        @wraps(behaviour)
        def non_blocking(request: Any, context: Any, send: Callable[[Any], None]) -> None:
            visit = self._enter(context)
            if visit is None:
                return

            def send_or_leave(response: Any) -> None:
                if response is None:
                    self._leave(visit)
                else:
                    visit.answers()
                send(response)

            # If it did not leave before this, the client did.
            context.add_callback(lambda: self._leave(visit, CancelledError()))
            try:
                behaviour(request, visit.context, send_or_leave)
            except BaseException as error:
                if not self._aborted(visit, error):
                    raise

        return non_blocking
