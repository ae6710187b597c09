"""The interceptor for `grpc.aio.server`, whose handlers are coroutine functions.

>>> from penstock.integrations.grpc.aio import RateLimitInterceptor
>>> grpc.aio.server(interceptors=[RateLimitInterceptor("100/second")])      # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any

import grpc
import grpc.aio

from penstock.integrations.deciding.waiting import Flow, finish_async
from penstock.integrations.grpc.interceptor import Interceptor, Visit
from penstock.integrations.grpc.wrap import Behaviour, InThreads, wrapped

__all__ = ["RateLimitInterceptor"]


class RateLimitInterceptor(Interceptor, grpc.aio.ServerInterceptor):
    """Refuses calls that are over a limit with RESOURCE_EXHAUSTED.

    ``grpc.aio.server(interceptors=[RateLimitInterceptor("100/second")])``. A stream is
    checked once, when it opens. All functions may be coroutine functions.
    `Interceptor` lists the options.
    """

    asynchronous = True

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return wrapped(handler, _InTasks(self, handler_call_details).around)


class _InTasks:
    """Behaviours of all kinds that grpc.aio runs; what comes out is of the same kind."""

    def __init__(self, interceptor: Interceptor, details: grpc.HandlerCallDetails) -> None:
        self._interceptor = interceptor
        self._details = details

    def around(self, behaviour: Behaviour, streams: bool) -> Behaviour:
        if isasyncgenfunction(behaviour):
            return self._around_generator(behaviour)
        if iscoroutinefunction(behaviour):
            return self._around_coroutine(behaviour)
        return self._in_threads().around(behaviour, streams)

    async def _enter(self, context: Any) -> Visit:
        call = self._interceptor.call(self._details, context)
        visit = await finish_async(self._interceptor.admit(call, context))
        if visit.refusal is not None:
            context.set_trailing_metadata(visit.trailing())
            await context.abort(visit.refusal.code, visit.refusal.message)
        return visit

    async def _leave(self, visit: Visit, error: BaseException | None = None) -> None:
        flow = visit.end(error)
        if flow is not None:
            await finish_async(flow)

    async def _fail(self, visit: Visit, error: BaseException) -> None:
        """The handler raised: what that means is the call's status, if it is an error of ours."""
        try:
            refusal = visit.refusal_for(error)
            if refusal is not None:
                await visit.context.abort(refusal.code, refusal.message)
        finally:
            await self._leave(visit, error)

    def _around_coroutine(self, behaviour: Behaviour) -> Behaviour:
        """One response, or a stream of them that the handler writes itself."""

        @wraps(behaviour)
        async def coroutine(request: Any, context: Any) -> Any:
            visit = await self._enter(context)
            try:
                response = await behaviour(request, visit.context)
            except BaseException as error:
                await self._fail(visit, error)
                raise
            await self._leave(visit)
            return response

        return coroutine

    def _around_generator(self, behaviour: Behaviour) -> Behaviour:
        @wraps(behaviour)
        async def generator(request: Any, context: Any) -> AsyncGenerator[Any, None]:
            visit = await self._enter(context)
            try:
                async with aclosing(behaviour(request, visit.context)) as responses:
                    async for response in responses:
                        visit.answers()
                        yield response
            except BaseException as error:
                await self._fail(visit, error)
                raise
            await self._leave(visit)

        return generator

    def _in_threads(self) -> InThreads:
        """For plain functions, which grpc.aio runs in threads; what may wait, waits here."""
        loop = asyncio.get_running_loop()

        def tell(flow: Flow[None]) -> None:
            # Not waited for: this may be the loop's own thread, at the end of a generator.
            asyncio.run_coroutine_threadsafe(finish_async(flow), loop)

        def ask(flow: Flow[Visit]) -> Visit:
            return asyncio.run_coroutine_threadsafe(finish_async(flow), loop).result()

        return InThreads(self._interceptor, self._details, ask, tell)
