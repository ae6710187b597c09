"""Middleware for ASGI: Starlette, FastAPI, Litestar, Quart, or an application of your own."""

from penstock.integrations.asgi.breaker import BreakerMiddleware
from penstock.integrations.asgi.concurrency import ConcurrencyMiddleware
from penstock.integrations.asgi.limit import PenstockMiddleware
from penstock.integrations.deciding.marked_views import exempt

__all__ = ["BreakerMiddleware", "ConcurrencyMiddleware", "PenstockMiddleware", "exempt"]
