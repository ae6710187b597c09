"""How many requests at once, and applications that are out of order."""

from __future__ import annotations

import asyncio
import io
import threading
from typing import Any

import pytest

from integrations.serving import ask, uvicorn_server
from penstock.breaker import CircuitBreaker
from penstock.concurrency import HIGH, LOW, AsyncConcurrencyLimiter, ConcurrencyLimiter
from penstock.integrations import Request, by_header
from penstock.integrations.asgi import BreakerMiddleware, ConcurrencyMiddleware
from penstock.integrations.wsgi import BreakerWSGI, ConcurrencyWSGI
from penstock.testing import FakeClock


class Slow:
    """An ASGI application whose requests end when they are told to."""

    def __init__(self) -> None:
        self.inside: list[tuple[str, asyncio.Event]] = []
        self.most = 0
        self.running = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        done = asyncio.Event()
        self.inside.append((scope["path"], done))
        try:
            await done.wait()
        finally:
            self.running -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def until(self, count: int) -> None:
        while len(self.inside) < count:
            await asyncio.sleep(0)


def scope(path: str = "/", **headers: str) -> dict[str, Any]:
    pairs = [(n.replace("_", "-").encode(), v.encode()) for n, v in headers.items()]
    return {"type": "http", "method": "GET", "path": path, "headers": pairs, "client": ("::1", 1)}


async def call(app: Any, asked: dict[str, Any]) -> tuple[int, dict[str, str]]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await app(asked, None, send)
    headers = {n.decode(): v.decode() for n, v in sent[0]["headers"]}
    return sent[0]["status"], headers


def urgent(request: Request) -> int:
    return HIGH if request.path.startswith("/urgent") else LOW


async def test_a_full_line_is_429_and_a_long_wait_504() -> None:
    slow, clock = Slow(), FakeClock(autojump=False)
    limiter = AsyncConcurrencyLimiter(1, waiting=1, clock=clock)
    app = ConcurrencyMiddleware(slow, limiter, timeout=5, exempt=["/health"])
    first = asyncio.create_task(call(app, scope("/first")))
    await slow.until(1)
    waits = asyncio.create_task(call(app, scope("/waits")))
    await asyncio.sleep(0.01)
    status, headers = await call(app, scope("/too-many"))
    assert (status, headers["retry-after"]) == (429, "1")
    exempt = asyncio.create_task(call(app, scope("/health")))
    await slow.until(2)
    clock.advance(5)
    assert (await waits)[0] == 504
    for _, done in slow.inside:
        done.set()
    assert [(await first)[0], (await exempt)[0]] == [200, 200]


async def test_the_line_goes_by_priority() -> None:
    slow = Slow()
    app = ConcurrencyMiddleware(slow, 1, waiting=10, priority=urgent, timeout=None)
    tasks = [asyncio.create_task(call(app, scope("/first")))]
    await slow.until(1)
    for path in ("/slow/1", "/slow/2", "/urgent/1", "/urgent/2"):
        tasks.append(asyncio.create_task(call(app, scope(path))))
        await asyncio.sleep(0.001)
    for count in range(1, 6):
        await slow.until(count)
        slow.inside[-1][1].set()
    assert [(await task)[0] for task in tasks] == [200] * 5
    assert slow.most == 1
    order = [path for path, _ in slow.inside]
    assert order == ["/first", "/urgent/1", "/urgent/2", "/slow/1", "/slow/2"]


async def test_each_key_has_slots_of_its_own_and_keys_may_be_awaited() -> None:
    async def tenant(request: Request) -> str:
        await asyncio.sleep(0)
        return request.header("x-tenant") or "nobody"

    slow = Slow()
    app = ConcurrencyMiddleware(slow, 1, key=tenant)
    tasks = [asyncio.create_task(call(app, scope(x_tenant=name))) for name in ("a", "b", "a")]
    await slow.until(2)
    for _, done in slow.inside:
        done.set()
    assert sorted([(await task)[0] for task in tasks]) == [200, 200, 429]


async def test_a_handler_that_raises_or_is_cancelled_gives_its_slot_back() -> None:
    async def raises(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("as asked")

    app = ConcurrencyMiddleware(raises, 1)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            await call(app, scope())
    slow = Slow()
    app = ConcurrencyMiddleware(slow, 1)
    for count in range(1, 4):
        task = asyncio.create_task(call(app, scope()))
        await slow.until(count)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_websockets_and_the_lifespan_take_no_slot() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    for middleware in (
        ConcurrencyMiddleware(app, 1),
        BreakerMiddleware(app, CircuitBreaker()),
    ):
        for kind in ("websocket", "lifespan"):
            await middleware({"type": kind}, None, None)  # type: ignore[arg-type]  # never called
    assert seen == ["websocket", "lifespan"] * 2


async def test_what_is_overloaded_is_told_to_a_size() -> None:
    class Size:
        limit = 1

        def __init__(self) -> None:
            self.dropped: list[bool] = []

        def record(self, duration_ns: int, running: int, dropped: bool, now: int) -> None:
            self.dropped.append(dropped)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        status = int(scope["path"][1:])
        await send({"type": "http.response.start", "status": status, "headers": []})

    size = Size()
    middleware = ConcurrencyMiddleware(app, size)
    for status in (200, 404, 503, 504, 500):
        assert (await call(middleware, scope(f"/{status}")))[0] == status
    assert size.dropped == [False, False, True, True, False]


def test_a_real_server_never_runs_more() -> None:
    running, most, lock = 0, 0, threading.Lock()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        await asyncio.sleep(0.005)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0.005)
        with lock:
            running -= 1
        await send({"type": "http.response.body", "body": b"ok"})

    found: list[int] = []
    with uvicorn_server(ConcurrencyMiddleware(app, 3, waiting=100)) as port:
        threads = [
            threading.Thread(target=lambda: found.extend(ask(port).status for _ in range(10)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [200] * 80
    assert most == 3


# WSGI ----------------------------------------------------------------------------------------


def wsgi_call(app: Any, path: str = "/", **headers: str) -> tuple[int, dict[str, str], Any]:
    started: list[Any] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "wsgi.input": io.BytesIO()}
    environ |= {f"HTTP_{name.upper()}": value for name, value in headers.items()}
    body = app(environ, lambda status, headers, *exc: started.append((status, headers)))
    status, pairs = started[-1]
    return int(status[:3]), dict(pairs), body


def wsgi_hello(environ: Any, start_response: Any) -> Any:
    path = environ["PATH_INFO"]
    if path == "/raise":
        raise RuntimeError("as asked")
    start_response(f"{path[1:] or 200} As Asked", [])
    return iter([b"a", b"b"])


def test_a_slot_is_held_until_the_response_is_closed() -> None:
    app = ConcurrencyWSGI(wsgi_hello, 1, timeout=0, exempt=["/201"])
    status, _, body = wsgi_call(app)
    assert status == 200
    assert wsgi_call(app)[0] == 429
    assert wsgi_call(app, "/201")[0] == 201
    assert list(body) == [b"a", b"b"]
    assert wsgi_call(app)[0] == 429
    body.close()
    status, _, body = wsgi_call(app)
    assert status == 200
    body.close()
    with pytest.raises(RuntimeError):
        wsgi_call(app, "/raise")
    status, _, body = wsgi_call(app)
    assert status == 200
    body.close()


def test_threads_wait_in_line() -> None:
    entered, go = threading.Event(), threading.Event()

    def slow(environ: Any, start_response: Any) -> Any:
        entered.set()
        go.wait(60)
        start_response("200 OK", [])
        return []

    limiter = ConcurrencyLimiter(1, waiting=1)
    app = ConcurrencyWSGI(slow, limiter, key=by_header("x-tenant", otherwise=lambda r: "all"))
    found: list[int] = []

    def request() -> None:
        status, _, body = wsgi_call(app)
        body.close()
        found.append(status)

    threads = [threading.Thread(target=request) for _ in range(2)]
    for thread in threads:
        thread.start()
    entered.wait(60)
    while limiter.state("all").waiting < 1:
        pass
    assert wsgi_call(app)[0] == 429
    go.set()
    for thread in threads:
        thread.join()
    assert found == [200, 200]


# Breakers ------------------------------------------------------------------------------------


def breaker(clock: FakeClock) -> CircuitBreaker:
    return CircuitBreaker(failures=3, pause=2.0, clock=clock, chance=lambda: 1.0)


async def test_an_application_that_fails_is_left_alone() -> None:
    clock = FakeClock()
    calls: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        calls.append(scope["path"])
        if scope["path"] == "/raise":
            raise RuntimeError("as asked")
        status = int(scope["path"][1:])
        await send({"type": "http.response.start", "status": status, "headers": []})

    middleware = BreakerMiddleware(app, breaker(clock), exempt=["/299"])
    assert (await call(middleware, scope("/404")))[0] == 404
    for _ in range(2):
        assert (await call(middleware, scope("/502")))[0] == 502
    with pytest.raises(RuntimeError):
        await call(middleware, scope("/raise"))
    status, headers = await call(middleware, scope("/200"))
    assert (status, headers["retry-after"]) == (503, "2")
    assert calls[-1] == "/raise"
    assert (await call(middleware, scope("/299")))[0] == 299
    clock.advance(2)
    assert (await call(middleware, scope("/200")))[0] == 200
    assert (await call(middleware, scope("/200")))[0] == 200


async def test_a_cancelled_probe_is_given_back() -> None:
    clock = FakeClock()
    slow, guard = Slow(), breaker(clock)
    guard.trip("by hand")
    clock.advance(2)
    middleware = BreakerMiddleware(slow, guard)
    task = asyncio.create_task(call(middleware, scope()))
    await slow.until(1)
    assert (await call(middleware, scope()))[0] == 503
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    task = asyncio.create_task(call(middleware, scope()))
    await slow.until(2)
    slow.inside[-1][1].set()
    assert (await task)[0] == 200
    assert guard.state == "closed"


def test_a_wsgi_application_that_fails_is_left_alone() -> None:
    clock = FakeClock()
    app = BreakerWSGI(wsgi_hello, breaker(clock), exempt=["/299"])
    assert [wsgi_call(app, path)[0] for path in ("/404", "/502", "/500")] == [404, 502, 500]
    with pytest.raises(RuntimeError):
        wsgi_call(app, "/raise")
    status, headers, _ = wsgi_call(app, "/200")
    assert (status, headers["Retry-After"]) == (503, "2")
    assert wsgi_call(app, "/299")[0] == 299
    clock.advance(2)
    assert [wsgi_call(app, "/200")[0] for _ in range(2)] == [200, 200]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConcurrencyMiddleware(wsgi_hello, 0), "limit"),
        (lambda: ConcurrencyMiddleware(wsgi_hello, 1, by="user"), "by is a function"),
        (lambda: ConcurrencyMiddleware(wsgi_hello, 1, timeout=-1), "timeout is a number"),
        (lambda: ConcurrencyWSGI(wsgi_hello, 1, priority="high"), "priority is a whole number"),
        (lambda: ConcurrencyWSGI(wsgi_hello, 1, key=5), "a key is a non-empty str"),
        (lambda: ConcurrencyMiddleware(wsgi_hello, AsyncConcurrencyLimiter(1), waiting=2), "own"),
        (lambda: ConcurrencyWSGI(wsgi_hello, ConcurrencyLimiter(1), waiting=2), "own"),
        (lambda: BreakerMiddleware(wsgi_hello, 5), "breaker is a CircuitBreaker"),
        (lambda: BreakerWSGI(wsgi_hello, 5), "breaker is a CircuitBreaker"),
    ],
)
def test_what_is_wrong_is_said(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()
