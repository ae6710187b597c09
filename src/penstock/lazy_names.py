"""Names of `penstock` that are found when they are asked for.

Those that need an extra are imported then. Those that are somewhere else, or have another name in
other libraries, are an ImportError that says what to write.
"""

from __future__ import annotations

_WEB = "penstock.integrations"
# Where a name is that people expect here.
_MODULES = {
    "AsyncPacedTransport": "penstock.client",
    "ConcurrencyMiddleware": f"{_WEB}.asgi",
    "FakeClock": "penstock.testing",
    "LeasedStore": "penstock.stores.leased",
    "RegionStore": "penstock.stores.regions",
    "PacedTransport": "penstock.client",
    "Penstock": f"{_WEB}.flask",
    "RateLimitInterceptor": f"{_WEB}.grpc",
    "StoreConformance": "penstock.testing",
}
_HINTS = {
    "limit": (
        "limiter = Limiter(), and @limiter.limit('5/minute') for a function; for a view,"
        f" from {_WEB}.fastapi (or flask, django) import limit"
    ),
    "exempt": f"from {_WEB}.flask (or fastapi, django) import exempt",
    "PenstockMiddleware": (
        f"from {_WEB}.asgi import PenstockMiddleware for FastAPI and Starlette,"
        f" {_WEB}.django.PenstockMiddleware in settings, and Penstock of {_WEB}.flask"
    ),
    "RateLimiter": "from penstock import Limiter",
    "AsyncRateLimiter": "from penstock import AsyncLimiter",
    "RateLimitExceeded": "from penstock import LimitExceeded",
    "Rate": "from penstock import Limit",
    "parse": "from penstock import Limit, and Limit.parse('100/minute')",
}


def __getattr__(name: str) -> object:
    if name == "RedisStore":
        from penstock.stores.redis import RedisStore

        return RedisStore
    # Not an AttributeError: Python would replace its message by one of its own.
    if name in _MODULES:
        raise ImportError(f"write: from {_MODULES[name]} import {name}", name="penstock")
    if name in _HINTS:
        raise ImportError(f"penstock has no {name!r}; write: {_HINTS[name]}", name="penstock")
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
