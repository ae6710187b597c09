"""Rate limits in a gRPC server: interceptors for `grpc.server` and, in `aio`, for `grpc.aio`.

>>> from penstock.integrations.grpc import RateLimitInterceptor
>>> grpc.server(pool, interceptors=[RateLimitInterceptor("100/second")])    # doctest: +SKIP
"""

try:
    from penstock.integrations.deciding.keys import combined
    from penstock.integrations.grpc.call import Call, Status, by_metadata, by_method, by_peer
    from penstock.integrations.grpc.options import EXEMPT
    from penstock.integrations.grpc.sync import RateLimitInterceptor
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("grpc", "google"):
        raise
    raise ModuleNotFoundError(
        f"this needs {error.name}: pip install 'penstock[grpc]'", name=error.name
    ) from None

__all__ = [
    "EXEMPT",
    "Call",
    "RateLimitInterceptor",
    "Status",
    "by_metadata",
    "by_method",
    "by_peer",
    "combined",
]
