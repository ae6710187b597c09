"""The interceptor for `grpc.server`, whose handlers run in threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from penstock.integrations.deciding.waiting import finish
from penstock.integrations.grpc.interceptor import Interceptor
from penstock.integrations.grpc.wrap import InThreads, wrapped


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
        return wrapped(handler, InThreads(self, handler_call_details, finish, finish).around)
