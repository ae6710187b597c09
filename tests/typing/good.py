"""What users write: every line passes mypy in its strict mode, and pyright."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import fastapi
import flask
import grpc
import grpc.aio
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware

from penstock import (
    AsyncConcurrencyLimiter,
    AsyncLimiter,
    CircuitBreaker,
    Limit,
    Limiter,
    MemoryStore,
)
from penstock.integrations import Request, Response, by_api_key, by_ip, by_route, by_user, combined
from penstock.integrations.asgi import (
    BreakerMiddleware,
    ConcurrencyMiddleware,
    PenstockMiddleware,
)
from penstock.integrations.django import limit as django_limit
from penstock.integrations.django import reset
from penstock.integrations.fastapi import document_limits, exempt, limit
from penstock.integrations.flask import Penstock
from penstock.integrations.flask import limit as flask_limit
from penstock.integrations.grpc import Call, RateLimitInterceptor, Status, aio, by_metadata
from penstock.integrations.wsgi import BreakerWSGI, ConcurrencyWSGI, PenstockWSGI
from penstock.switch import limits_off


def by_tenant(request: Request) -> str | None:
    return request.header("x-tenant")


async def by_account(request: Request) -> str | None:
    return request.user


def plan(request: Request) -> str:
    return "1000/minute" if request.user else "10/minute"


def failed(response: Response) -> bool:
    return response.status == 401


# Limiters -------------------------------------------------------------------------------------

limiter = Limiter("5/minute", store="memory:", name="search")
in_tasks = AsyncLimiter("5/minute; 100/day")


@limiter.limit
def bare(number: int) -> str:
    return str(number)


@limiter.limit("2/minute", key=lambda number: f"number:{number}", timeout="5s")
def keyed(number: int) -> str:
    return str(number)


@in_tasks.limit
async def coroutine(number: int) -> str:
    return bare(number) + keyed(number)


async def use() -> list[str]:
    if await in_tasks.hit("user:42"):
        await asyncio.gather(in_tasks.hit("user:42"), in_tasks.peek("user:42"))
    task = asyncio.create_task(in_tasks.hit("user:42", cost=2))
    remaining: int = (await task).remaining
    part = await in_tasks.hit_up_to("user:42", remaining)
    messages = [message.upper() async for message in in_tasks.limited(["a"], key="k")]
    return [*messages, await coroutine(part.taken)]


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
app.add_middleware(PenstockMiddleware, from_env=True, enabled=False)
app.add_middleware(ConcurrencyMiddleware, limit=100, enabled=None)
app.add_middleware(BreakerMiddleware, breaker=CircuitBreaker(), enabled=True)
starlette = Starlette(middleware=[Middleware(PenstockMiddleware, limit="100/minute", hops=1)])
wrapped = PenstockMiddleware(app, limit="100/minute", store=MemoryStore(), shadow=True)
wrapped.reset()
with limits_off():
    pass


app.add_middleware(PenstockMiddleware, limit={by_ip: "100/minute", by_user: ["1/second", "99/day"]})
document_limits(app)
searches = limit("10/second", name="searches", enabled=False)
searches.reset()


@app.get("/search", dependencies=[Depends(limit("10/second", key=by_api_key()))])
async def search(q: str) -> list[str]:
    return [q]


@app.get("/find")
@searches
@limit({by_ip: "10/minute", by_account: "1000/day"}, override=True)
async def find(q: str, _: Annotated[None, Depends(searches)]) -> list[str]:
    return [q]


async def stale(request: fastapi.Request) -> list[str]:
    return [request.url.path]


@app.get("/cached")
@limit(plan, fallback=stale)
def from_cache(word: str) -> str:
    return word


@app.get("/health")
@exempt
async def health() -> str:
    return "ok"


found: str = from_cache("word")


# Flask and WSGI -------------------------------------------------------------------------------

site = flask.Flask("shop")
penstock = Penstock(site, "100/minute", exempt=["/health"], on_failure="closed")
penstock.reset()
other = Penstock(site, from_env=True, enabled=site.debug)


@site.get("/cached")
@penstock.limit("10/second", fallback=lambda: "from a cache")
def cached() -> str:
    return "hello"


@flask_limit("10/second", key=by_ip, name="views")
def view(number: int) -> str:
    return str(number)


@site.get("/reports")
@flask_limit({by_ip: "10/minute", by_user: "1000/day"}, override=True)
def reports() -> str:
    return "hello"


@site.get("/health")
@exempt
def healthy() -> str:
    return "ok"


text: str = view(7)
wsgi: Any = PenstockWSGI(site.wsgi_app, limit="100/minute", fields="ietf")
slots: Any = ConcurrencyWSGI(site.wsgi_app, 10, waiting=50)
breaker: Any = BreakerWSGI(site.wsgi_app, CircuitBreaker())


# Django ---------------------------------------------------------------------------------------


@django_limit("5/minute", key=by_user, cost=2, enabled=False)
def django_view(request: Any) -> str:
    return "hello"


@django_limit({by_ip: "10/minute", by_user: "1000/day"}, override=True)
def django_view_by_both(request: Any) -> str:
    return "hello"


reset()


# gRPC -----------------------------------------------------------------------------------------


def not_failed(status: Status) -> bool:
    return not status.failed


def by_method_and_peer(call: Call) -> str:
    return f"{call.method} {call.address}"


threads: grpc.ServerInterceptor = RateLimitInterceptor("100/second", key=by_method_and_peer)
RateLimitInterceptor("100/second", enabled=False).reset()
tasks: grpc.aio.ServerInterceptor = aio.RateLimitInterceptor(
    "100/second", key=by_metadata("x-api-key", secret=True), count_when=not_failed
)
