"""What users write: every line passes mypy in its strict mode, and pyright."""

from __future__ import annotations

from typing import Any

import flask
import grpc
import grpc.aio
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware

from penstock import AsyncConcurrencyLimiter, CircuitBreaker, Limit, MemoryStore
from penstock.integrations import Request, Response, by_api_key, by_ip, by_route, by_user, combined
from penstock.integrations.asgi import (
    BreakerMiddleware,
    ConcurrencyMiddleware,
    PenstockMiddleware,
)
from penstock.integrations.django import limit as django_limit
from penstock.integrations.fastapi import limit
from penstock.integrations.flask import Penstock
from penstock.integrations.flask import limit as flask_limit
from penstock.integrations.grpc import Call, RateLimitInterceptor, Status, aio, by_metadata
from penstock.integrations.wsgi import BreakerWSGI, ConcurrencyWSGI, PenstockWSGI


def by_tenant(request: Request) -> str | None:
    return request.header("x-tenant")


async def by_account(request: Request) -> str | None:
    return request.user


def plan(request: Request) -> str:
    return "1000/minute" if request.user else "10/minute"


def failed(response: Response) -> bool:
    return response.status == 401


# FastAPI and Starlette ------------------------------------------------------------------------

app = FastAPI()
app.add_middleware(PenstockMiddleware, limit="100/minute")
app.add_middleware(PenstockMiddleware, limit=["10/second", Limit.parse("100/minute")], key=by_user)
app.add_middleware(PenstockMiddleware, limit=plan, key=combined(by_tenant, by_route))
app.add_middleware(PenstockMiddleware, gate="rules.yaml", watch=True, trusted=["10.0.0.0/8"])
app.add_middleware(PenstockMiddleware, limit="5/minute", key=by_account, count_when=failed)
app.add_middleware(ConcurrencyMiddleware, limit=100, waiting=50, timeout=5)
app.add_middleware(ConcurrencyMiddleware, limit=AsyncConcurrencyLimiter(10), by=by_user)
app.add_middleware(BreakerMiddleware, breaker=CircuitBreaker(failures=20))
starlette = Starlette(middleware=[Middleware(PenstockMiddleware, limit="100/minute", hops=1)])
wrapped = PenstockMiddleware(app, limit="100/minute", store=MemoryStore(), shadow=True)


@app.get("/search", dependencies=[Depends(limit("10/second", key=by_api_key()))])
async def search(q: str) -> list[str]:
    return [q]


# Flask and WSGI -------------------------------------------------------------------------------

site = flask.Flask("shop")
penstock = Penstock(site, "100/minute", exempt=["/health"], on_failure="closed")


@site.get("/cached")
@penstock.limit("10/second", fallback=lambda: "from a cache")
def cached() -> str:
    return "hello"


@flask_limit("10/second", key=by_ip, name="views")
def view(number: int) -> str:
    return str(number)


text: str = view(7)
wsgi: Any = PenstockWSGI(site.wsgi_app, limit="100/minute", fields="ietf")
slots: Any = ConcurrencyWSGI(site.wsgi_app, 10, waiting=50)
breaker: Any = BreakerWSGI(site.wsgi_app, CircuitBreaker())


# Django ---------------------------------------------------------------------------------------


@django_limit("5/minute", key=by_user, cost=2)
def django_view(request: Any) -> str:
    return "hello"


# gRPC -----------------------------------------------------------------------------------------


def not_failed(status: Status) -> bool:
    return not status.failed


def by_method_and_peer(call: Call) -> str:
    return f"{call.method} {call.address}"


threads: grpc.ServerInterceptor = RateLimitInterceptor("100/second", key=by_method_and_peer)
tasks: grpc.aio.ServerInterceptor = aio.RateLimitInterceptor(
    "100/second", key=by_metadata("x-api-key", secret=True), count_when=not_failed
)
