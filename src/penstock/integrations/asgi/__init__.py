"""Middleware for ASGI: Starlette, FastAPI, Litestar, Quart, or an application of your own."""

from penstock.integrations.asgi.limit import PenstockMiddleware

__all__ = ["PenstockMiddleware"]
