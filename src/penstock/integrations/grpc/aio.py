"""The interceptor for `grpc.aio.server`, whose handlers are coroutine functions.

>>> from penstock.integrations.grpc.aio import RateLimitInterceptor
>>> grpc.aio.server(interceptors=[RateLimitInterceptor("100/second")])      # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any

import grpc
import grpc.aio

from penstock.integrations.deciding.waiting import Flow, finish_async
from penstock.integrations.grpc.interceptor import ActiveCall, Interceptor
from penstock.integrations.grpc.sync import Behaviour, InThreads, wrap

__all__ = ["RateLimitInterceptor"]


class RateLimitInterceptor(Interceptor, grpc.aio.ServerInterceptor):
    """Refuses calls that are over a limit with RESOURCE_EXHAUSTED.

    ``grpc.aio.server(interceptors=[RateLimitInterceptor("100/second")])``. A stream is
    checked once, when it opens. All functions may be coroutine functions.
    `Interceptor` lists the options.
    """

    asynchronous = True

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Coroutine[Any, Any, Any]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # `grpc.server` takes any object, and would call a coroutine as if it were a handler.
            raise TypeError(
                "this interceptor is for grpc.aio.server: with grpc.server, use"
                " penstock.integrations.grpc.RateLimitInterceptor"
            ) from None
        return self._intercept(continuation, handler_call_details)

    async def _intercept(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return wrap(handler, _InTasks(self, handler_call_details).around)


class _InTasks:
    """Wraps behaviours of all kinds that grpc.aio runs, each in one of the same kind."""

    def __init__(self, interceptor: Interceptor, details: grpc.HandlerCallDetails) -> None:
        self._interceptor = interceptor
        self._details = details

    def around(self, behaviour: Behaviour, streams: bool) -> Behaviour:
        if isasyncgenfunction(behaviour):
            return self._around_generator(behaviour)
        if iscoroutinefunction(behaviour):
            return self._around_coroutine(behaviour)
        return self._in_threads().around(behaviour, streams)

    async def _enter(self, context: Any) -> ActiveCall:
        call = self._interceptor.call(self._details, context)
        active = await finish_async(self._interceptor.admit(call, context))
        if active.refusal is not None:
            context.set_trailing_metadata(active.trailing())
            await context.abort(active.refusal.code, active.refusal.message)
        return active

    async def _leave(self, active: ActiveCall, error: BaseException | None = None) -> None:
        flow = active.end(error)
        if flow is not None:
            await finish_async(flow)

    async def _fail(self, active: ActiveCall, error: BaseException) -> None:
        """End the call with the status of the error, if it is one of ours."""
        try:
            refusal = active.refusal_for(error)
            if refusal is not None:
                await active.context.abort(refusal.code, refusal.message)
        finally:
            await self._leave(active, error)

    def _around_coroutine(self, behaviour: Behaviour) -> Behaviour:
        """One response, or a stream of them that the handler writes itself."""

        @wraps(behaviour)
        async def coroutine(request: Any, context: Any) -> Any:
            active = await self._enter(context)
            try:
                response = await behaviour(request, active.context)
            except BaseException as error:
                await self._fail(active, error)
                raise
            await self._leave(active)
            return response

        return coroutine

    def _around_generator(self, behaviour: Behaviour) -> Behaviour:
        @wraps(behaviour)
        async def generator(request: Any, context: Any) -> AsyncGenerator[Any, None]:
            active = await self._enter(context)
            try:
                async with aclosing(behaviour(request, active.context)) as responses:
                    async for response in responses:
                        active.responds()
                        yield response
            except BaseException as error:
                await self._fail(active, error)
                raise
            await self._leave(active)

        return generator

    def _in_threads(self) -> InThreads:
        """For plain functions, which grpc.aio runs in threads. Flows run in this loop."""
        loop = asyncio.get_running_loop()

        def start(flow: Flow[None]) -> None:
            # Not waited for: this may be the loop's own thread, at the end of a generator.
            asyncio.run_coroutine_threadsafe(finish_async(flow), loop)

        def wait_for(flow: Flow[ActiveCall]) -> ActiveCall:
            return asyncio.run_coroutine_threadsafe(finish_async(flow), loop).result()

        return InThreads(self._interceptor, self._details, wait_for, start)
