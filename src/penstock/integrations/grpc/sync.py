"""The interceptor for `grpc.server`, whose handlers run in threads.

It wraps every handler in a handler of the same kind, which checks the limits.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Generator
from functools import wraps
from typing import Any

import grpc

from penstock.integrations.deciding.waiting import Flow, finish
from penstock.integrations.grpc.interceptor import ActiveCall, Interceptor

Behaviour = Callable[..., Any]

# By whether requests stream, and responses.
_KINDS: dict[tuple[bool, bool], tuple[str, Callable[..., Any]]] = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
    (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
}


class RateLimitInterceptor(Interceptor, grpc.ServerInterceptor):
    """Refuses calls that are over a limit with RESOURCE_EXHAUSTED.

    ``grpc.server(pool, interceptors=[RateLimitInterceptor("100/second")])``. A stream is
    checked once, when it opens. `Interceptor` lists the options.
    """

    asynchronous = False

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Any],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        return wrap(handler, InThreads(self, handler_call_details, finish, finish).around)


def wrap(handler: Any, around: Callable[[Behaviour, bool], Behaviour]) -> Any:
    """A handler of the same kind. ``around`` also gets whether responses stream."""
    name, make = _KINDS[bool(handler.request_streaming), bool(handler.response_streaming)]
    return make(
        around(getattr(handler, name), bool(handler.response_streaming)),
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


class InThreads:
    """Behaviours that are plain functions.

    ``wait_for`` runs a flow and returns its result; ``start`` need not wait for its end.
    """

    def __init__(
        self,
        interceptor: Interceptor,
        details: grpc.HandlerCallDetails,
        wait_for: Callable[[Flow[ActiveCall]], ActiveCall],
        start: Callable[[Flow[None]], Any],
    ) -> None:
        self._interceptor = interceptor
        self._details = details
        self._wait_for = wait_for
        self._start = start

    def around(self, behaviour: Behaviour, streams: bool) -> Behaviour:
        if not streams:
            return self._around_unary(behaviour)
        if getattr(behaviour, "experimental_non_blocking", False):
            return self._around_non_blocking(behaviour)
        return self._around_stream(behaviour)

    def _enter(self, context: Any) -> ActiveCall | None:
        """None after a refusal. Most contexts raise then; those of grpc.aio do not."""
        active = self._wait_for(
            self._interceptor.admit(self._interceptor.call(self._details, context), context)
        )
        if active.refusal is None:
            return active
        context.set_trailing_metadata(active.trailing())
        context.abort(active.refusal.code, active.refusal.message)
        return None

    def _leave(self, active: ActiveCall, error: BaseException | None = None) -> None:
        flow = active.end(error)
        if flow is not None:
            self._start(flow)

    def _aborted(self, active: ActiveCall, error: BaseException) -> bool:
        """End the call if the handler raised one of our errors; whether it did."""
        try:
            refusal = active.refusal_for(error)
            if refusal is not None:
                active.context.abort(refusal.code, refusal.message)
            return refusal is not None
        finally:
            self._leave(active, error)

    def _around_unary(self, behaviour: Behaviour) -> Behaviour:
        @wraps(behaviour)
        def unary(request: Any, context: Any) -> Any:
            active = self._enter(context)
            if active is None:
                return None
            try:
                response = behaviour(request, active.context)
            except BaseException as error:
                if self._aborted(active, error):
                    return None
                raise
            self._leave(active)
            return response

        return unary

    def _around_stream(self, behaviour: Behaviour) -> Behaviour:
        # A generator, so that a thread of the pool checks the limits, in grpc.aio, too.
        @wraps(behaviour)
        def stream(request: Any, context: Any) -> Generator[Any, None, None]:
            active = self._enter(context)
            if active is None:
                return
            try:
                responses = behaviour(request, active.context)
                try:
                    for response in responses:
                        active.responds()
                        yield response
                finally:
                    close = getattr(responses, "close", None)
                    if close is not None:
                        close()
            except BaseException as error:
                if self._aborted(active, error):
                    return
                raise
            self._leave(active)

        return stream

    def _around_non_blocking(self, behaviour: Behaviour) -> Behaviour:
        """For handlers that respond by a callback, such as the one that watches health."""

        @wraps(behaviour)
        def non_blocking(request: Any, context: Any, send: Callable[[Any], None]) -> None:
            active = self._enter(context)
            if active is None:
                return

            def send_or_leave(response: Any) -> None:
                if response is None:
                    self._leave(active)
                else:
                    active.responds()
                send(response)

            # Called at the end of the RPC: if the handler has not left by then, the client has.
            context.add_callback(lambda: self._leave(active, CancelledError()))
            try:
                behaviour(request, active.context, send_or_leave)
            except BaseException as error:
                if not self._aborted(active, error):
                    raise

        return non_blocking
