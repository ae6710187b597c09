"""PenstockMiddleware: under a real server, and message by message."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from integrations.serving import ask, uvicorn_server
from penstock import AsyncGate, Decision, Gate, Limit, MemoryStore, SharedMemoryStore, StoreError
from penstock.events import Refused
from penstock.integrations import Request, by_ip, by_route, by_user, combined
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.deciding.refusals import Deferred
from penstock.stores.base import Counters, Store
from penstock.testing import FakeClock

Headers = list[tuple[bytes, bytes]]


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def scope(path: str = "/", method: str = "GET", headers: Headers | None = None) -> dict[str, Any]:
    return {
        "type": "http", "method": method, "path": path, "query_string": b"a=1",
        "headers": headers or [], "client": ("203.0.113.7", 1),
    }  # fmt: skip


async def call(app: Any, asked: dict[str, Any] | None = None, body: bytes = b"") -> list[Any]:
    """All that the application sent."""
    sent: list[Any] = []
    pieces = [body[:2], body[2:]]

    async def receive() -> dict[str, Any]:
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope() if asked is None else asked, receive, send)
    return sent


async def statuses(app: Any, *scopes: dict[str, Any]) -> list[int]:
    return [(await call(app, dict(each)))[0]["status"] for each in scopes]


def header(sent: list[Any], name: str) -> str | None:
    return dict(sent[0]["headers"]).get(name.encode(), b"").decode() or None


# What passes through -------------------------------------------------------------------------


async def test_only_the_start_of_a_response_is_touched() -> None:
    messages = [
        {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")], "trailers": True},
        {"type": "http.response.body", "body": b"one", "more_body": True},
        {"type": "http.response.body", "body": b"two"},
        {"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")]},
    ]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    sent = await call(PenstockMiddleware(app, limit="10/minute"))
    assert sent[1:] == messages[1:]
    assert sent[0]["trailers"] is True
    assert sent[0]["headers"][0] == (b"a", b"b")
    assert header(sent, "x-ratelimit-remaining") == "9"
    assert messages[0]["headers"] == [(b"a", b"b")], "the application's own list was changed"


def test_a_stream_streams() -> None:
    seen = asyncio.Event()

    async def slowly() -> Any:
        yield b"first"
        await seen.wait()
        yield b"second"

    async def stream(request: Any) -> StreamingResponse:
        return StreamingResponse(slowly())

    async def go_on(request: Any) -> PlainTextResponse:
        seen.set()
        return PlainTextResponse("ok")

    app = Starlette(routes=[Route("/", stream), Route("/go-on", go_on)])
    app.add_middleware(PenstockMiddleware, limit="10/minute")
    with uvicorn_server(app) as port, httpx.stream("GET", f"http://127.0.0.1:{port}") as response:
        chunks = response.iter_raw()
        assert next(chunks) == b"first"  # it is here before there is a second
        httpx.get(f"http://127.0.0.1:{port}/go-on")
        assert b"".join(chunks) == b"second"


async def test_other_kinds_of_scope_pass_untouched() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    middleware = PenstockMiddleware(app, limit="1/minute")
    for kind in ("lifespan", "something-new"):
        asked = {"type": kind}
        await middleware(asked, call, ask)  # type: ignore[arg-type]  # two objects to know again
        assert seen.pop() == (asked, call, ask)


async def test_two_of_us_tell_in_one_set_of_fields() -> None:
    inner = PenstockMiddleware(hello, limit="2/hour", name="inner")
    app = PenstockMiddleware(inner, limit="9/hour", name="outer")
    sent = await call(app)
    assert [n for n, _ in sent[0]["headers"]].count(b"ratelimit") == 1
    assert header(sent, "ratelimit") == '"inner";r=1;t=1800, "outer";r=8;t=400'
    await call(app)
    sent = await call(app)
    assert sent[0]["status"] == 429
    assert [n for n, _ in sent[0]["headers"]].count(b"x-ratelimit-limit") == 1
    assert header(sent, "x-ratelimit-limit") == "2"


# Websockets ----------------------------------------------------------------------------------


def test_a_websocket_is_checked_once_and_closed_with_a_policy_code() -> None:
    async def echo(websocket: Any) -> None:
        await websocket.accept()
        for _ in range(3):
            await websocket.send_text(await websocket.receive_text())
        await websocket.close()

    app = Starlette(routes=[WebSocketRoute("/", echo)])
    app.add_middleware(PenstockMiddleware, limit="1/hour")
    with uvicorn_server(app) as port:
        url = f"ws://127.0.0.1:{port}/"
        with connect(url) as first:
            assert first.response is not None
            assert first.response.headers["X-RateLimit-Remaining"] == "0"
            for word in ("many", "messages", "one check"):
                first.send(word)
                assert first.recv() == word
        with connect(url) as second:
            with pytest.raises(ConnectionClosed) as closed:
                second.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
            assert closed.value.rcvd.reason.startswith("Rate limit exceeded: ")


# Who, what and how much ----------------------------------------------------------------------


async def test_keys_costs_and_limits_may_be_coroutine_functions() -> None:
    async def tenant(request: Request) -> str:
        await asyncio.sleep(0)
        return request.header("x-tenant") or "nobody"

    async def price(request: Request) -> int:
        return 2 if request.path == "/dear" else 1

    async def plan(request: Request) -> str | None:
        return None if request.header("x-tenant") == "free" else "4/hour"

    app = PenstockMiddleware(hello, key=tenant, cost=price, limit=plan)
    a, b, free = ([(b"x-tenant", name)] for name in (b"a", b"b", b"free"))
    dear = [scope("/dear", headers=a)] * 3
    assert await statuses(app, *dear) == [200, 200, 429]
    assert await statuses(app, *[scope(headers=b)] * 5) == [200] * 4 + [429]
    assert await statuses(app, *[scope(headers=free)] * 9) == [200] * 9


def test_a_route_is_its_template_and_a_user_a_user() -> None:
    class ByHeader(AuthenticationBackend):
        async def authenticate(self, conn: Any) -> Any:
            name = conn.headers.get("authorization")
            return (AuthCredentials(), SimpleUser(name)) if name else None

    async def show(request: Any) -> PlainTextResponse:
        return PlainTextResponse(request["penstock"].key)

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse(scope["penstock"].key)(scope, receive, send)

    app = Starlette(
        routes=[
            Route("/users/{id:int}", show),
            Route("/users/{id}", show, methods=["POST"]),
            Mount("/api", routes=[Route("/items/{item}", show), Mount("/static", app=mounted)]),
        ],
        middleware=[
            Middleware(AuthenticationMiddleware, backend=ByHeader()),
            Middleware(PenstockMiddleware, limit="100/hour", key=combined(by_user, by_route)),
        ],
    )
    ann = (("Authorization", "ann"),)
    with uvicorn_server(app) as port:
        template = b"%20/users/%7Bid%7D"
        assert ask(port, "/users/1", headers=ann).body == b"user%3Aann:route%3AGET" + template
        first, second = (ask(port, f"/users/{n}").body for n in (1, 2))
        assert first == second == b"ip%3A127.0.0.1/32:route%3AGET" + template
        assert ask(port, "/users/1", "POST").body.endswith(b"POST" + template)
        assert ask(port, "/api/items/7").body.endswith(b"/api/items/%7Bitem%7D")
        assert ask(port, "/api/static/a/b").body.endswith(b"/api/static")


async def test_paths_that_lead_nowhere_share_one_key() -> None:
    app = Starlette(routes=[Route("/a", hello)])
    app.add_middleware(PenstockMiddleware, limit="2/hour", key=by_route)
    paths = [scope(f"/random/{number}") for number in range(4)]
    assert await statuses(app, *paths) == [404, 404, 429, 429]


def test_no_forged_address_escapes_on_a_real_server() -> None:
    app = PenstockMiddleware(hello, limit="5/hour", trusted=["127.0.0.0/8"])
    with uvicorn_server(app) as port:
        forged = [f"192.0.2.{n}, 203.0.113.7" for n in range(20)]
        forged += [f"rubbish {n}, 203.0.113.7" for n in range(20)]
        found = [ask(port, headers=(("X-Forwarded-For", text),)).status for text in forged]
    assert found.count(200) == 5
    assert found[5:] == [429] * 35


# Options -------------------------------------------------------------------------------------


async def test_only_failed_log_ins_count() -> None:
    answers = iter([200] * 8 + [401] * 3 + [200])

    async def log_in(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": next(answers), "headers": []})
        await send({"type": "http.response.body", "body": b""})

    app = PenstockMiddleware(log_in, limit="3/hour", count_when=lambda r: r.status == 401)
    assert await statuses(app, *[scope()] * 12) == [200] * 8 + [401] * 3 + [429]


@pytest.mark.parametrize("gate", [False, True])
async def test_what_the_server_spoiled_is_given_back(gate: bool) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("as asked")

    options: dict[str, Any] = {"limit": "2/hour"}
    if gate:
        rules = {"domain": "d", "descriptors": [{"key": "remote_address", "limits": "2/hour"}]}
        options = {"gate": AsyncGate.from_rules(rules)}
    app = PenstockMiddleware(broken, count_when=lambda r: not r.failed, **options)
    for _ in range(5):
        with pytest.raises(RuntimeError):
            await call(app)


async def test_exceptions_count_unless_told_otherwise() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("as asked")

    app = PenstockMiddleware(broken, limit="2/hour")
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await call(app)
    assert await statuses(app, scope()) == [429]


async def test_a_fallback_answers_instead_and_is_marked() -> None:
    async def cached(scope: Any, receive: Any, send: Any) -> None:
        assert not scope["penstock"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"age", b"60")]})
        await send({"type": "http.response.body", "body": b"from the cache"})

    app = PenstockMiddleware(hello, limit="1/hour", fallback=cached)
    first, second = await call(app), await call(app)
    assert header(first, "x-ratelimit-fallback") is None
    assert header(second, "x-ratelimit-fallback") == "true"
    assert header(second, "x-ratelimit-remaining") == "0"
    assert header(second, "age") == "60"
    assert second[1]["body"] == b"from the cache"


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_deferred_request_is_kept_whole(asynchronous: bool) -> None:
    queue: list[Deferred] = []

    def put(kept: Deferred) -> str | None:
        if len(queue) == 2:
            return None
        queue.append(kept)
        return f"/jobs/{len(queue)}"

    async def put_async(kept: Deferred) -> str | None:
        return put(kept)

    defer = put_async if asynchronous else put
    app = PenstockMiddleware(hello, limit="1/hour", defer=defer, defer_body=10)
    asked = scope("/work", "POST", [(b"content-type", b"text/plain")])
    await call(app, dict(asked))
    sent = await call(app, dict(asked), b"all of it")
    assert sent[0]["status"] == 202
    assert header(sent, "location") == "/jobs/1"
    assert json.loads(sent[1]["body"]) == {
        "status": "deferred", "location": "/jobs/1", "retry_after": 3600,
    }  # fmt: skip
    headers = [("content-type", "text/plain")]
    assert queue == [Deferred("POST", "/work", "a=1", headers, b"all of it", "203.0.113.7")]
    assert (await call(app, asked, b"far too long"))[0]["status"] == 429
    assert (await call(app, asked, b"2"))[0]["status"] == 202
    assert (await call(app, asked, b"3"))[0]["status"] == 429, "the queue is full"


async def test_shadow_refuses_nobody_and_tells() -> None:
    events: list[Any] = []
    app = PenstockMiddleware(hello, limit="1/hour", shadow=True, hook=events.append)
    assert await statuses(app, *[scope()] * 3) == [200] * 3
    assert events == [Refused("integrations", "ip:203.0.113.7/32", True)] * 2


class Broken(Store):
    """A store whose decisions fail."""

    class Counters(Counters):
        def hit(self, key: str, cost: int) -> Decision:
            raise StoreError("as asked")

    def make_counters(self, limit: Limit) -> Counters:
        return self.Counters(limit, None)


class Later(Broken):
    """The same, for coroutines."""

    waits = True

    class Counters(Counters):
        def submit(self, verb: str, *args: Any) -> Any:
            async def fail() -> None:
                raise StoreError("as asked")

            return fail()


async def test_a_gate_in_shadow_gives_nothing_back_that_it_did_not_take() -> None:
    rules = {"domain": "d", "descriptors": [{"key": "remote_address", "limits": "2/hour"}]}
    gate = AsyncGate.from_rules(rules)
    app = PenstockMiddleware(hello, gate=gate, count_when=lambda response: False)
    counting = PenstockMiddleware(hello, gate=gate)
    assert await statuses(counting, *[scope()] * 3) == [200, 200, 429]
    gate.switches.mode("shadow")
    assert await statuses(app, *[scope()] * 3) == [200] * 3
    gate.switches.mode("enforce")
    assert await statuses(counting, scope()) == [429]


@pytest.mark.parametrize("store", [Broken, Later])
@pytest.mark.parametrize(("policy", "status"), [(None, 200), ("open", 200), ("closed", 503)])
async def test_a_store_that_fails(store: Any, policy: str | None, status: int) -> None:
    app = PenstockMiddleware(hello, limit="1/hour", store=store(), on_failure=policy)
    assert await statuses(app, *[scope()] * 3) == [status] * 3


async def test_several_limits_pass_or_nothing_is_taken() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    app = PenstockMiddleware(hello, limit=["2/second", "3/hour"], store=store)
    assert await statuses(app, *[scope()] * 4) == [200, 200, 429, 429]
    clock.advance(1)
    assert await statuses(app, *[scope()] * 2) == [200, 429]


async def test_rules_from_a_file_that_is_watched(tmp_path: Any) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("domain: web\ndescriptors: [{key: path, limits: 1/hour}]\n")
    app = PenstockMiddleware(hello, gate=rules, watch=True)
    assert await statuses(app, scope("/a"), scope("/a"), scope("/b")) == [200, 429, 200]

    async def until_shutdown(scope: Any, receive: Any, send: Any) -> None:
        return None

    app._app = until_shutdown
    await app({"type": "lifespan"}, call, ask)  # type: ignore[arg-type]  # nobody calls them
    assert isinstance(app._checkpoint._decider.gate, AsyncGate)
    assert app._checkpoint._decider.gate._watcher is None


async def test_rules_count_ipv6_by_network_and_lists_see_the_address() -> None:
    rules = {
        "domain": "web",
        "allow": {"remote_address": ["2001:db8::99"]},
        "descriptors": [{"key": "remote_address", "limits": "1/hour"}],
    }
    app = PenstockMiddleware(hello, gate=AsyncGate.from_rules(rules))

    def from_(address: str) -> dict[str, Any]:
        return {**scope(), "client": (address, 1)}

    one, two, friend = "2001:db8::1", "2001:db8::2", "2001:db8::99"
    assert await statuses(app, from_(one), from_(two), from_(friend)) == [200, 429, 200]


# What is wrong is said -----------------------------------------------------------------------

RULES = {"domain": "web", "descriptors": [{"key": "tenant", "limits": "1/hour"}]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either limit='100/minute' or gate='rules.yaml'"),
        ({"limit": "1/hour", "gate": "rules.yaml"}, "either limit="),
        ({"limit": "1/fortnight"}, "fortnight"),
        ({"limit": "1/hour", "key": "ip"}, "key is a function"),
        ({"limit": "1/hour", "cost": 0}, "cost is at least 1"),
        ({"limit": "1/hour", "fields": "all"}, "fields is one of"),
        ({"limit": "1/hour", "exempt": "/health"}, "a list of paths"),
        ({"limit": "1/hour", "exempt": ["health"]}, "an exempt path is"),
        ({"limit": "1/hour", "exempt": ["/a/*/b"]}, "an exempt path is"),
        ({"limit": "1/hour", "on_failure": "local"}, "'open' or 'closed'"),
        ({"limit": "1/hour", "count_when": 401}, "count_when is a function"),
        ({"limit": "1/hour", "defer": "queue"}, "defer is a function"),
        ({"limit": "1/hour", "defer": print, "defer_body": -1}, "defer_body"),
        ({"limit": "1/hour", "fallback": "cache"}, "fallback is an ASGI application"),
        ({"limit": "1/hour", "fallback": hello, "defer": print}, "fallback or defer"),
        ({"limit": "1/hour", "websocket_code": 42}, "from 1000 to 4999"),
        ({"limit": "1/hour", "websocket_code": 1006}, "1006 is reserved"),
        ({"limit": []}, "empty list"),
        ({"limit": "1/hour", "name": 5}, "name is a non-empty str"),
        ({"limit": "1/hour", "name": ""}, "name is a non-empty str"),
        ({"limit": "1/hour", "shadow": "false"}, "shadow is True or False"),
        ({"limit": "1/hour", "watch": "no"}, "watch is True or False"),
        ({"limit": "1/hour", "count_preflight": 0}, "count_preflight is True or False"),
        ({"limit": "1/hour", "clock": 5}, "a clock has now"),
        ({"limit": "1/hour", "count_when": hello}, "no coroutine function"),
        ({"limit": "1/hour", "watch": True}, "watch is for gate="),
        ({"limit": "1/hour", "dimensions": {}}, "are for a gate"),
        ({"gate": Gate.from_rules(RULES)}, "gate is an AsyncGate"),
        ({"gate": AsyncGate.from_rules(RULES)}, "nobody says what 'tenant' is"),
        ({"gate": AsyncGate.from_rules(RULES), "key": str}, "give dimensions, not a key"),
        ({"gate": AsyncGate.from_rules(RULES), "store": MemoryStore()}, "its store already"),
        ({"gate": AsyncGate.from_rules(RULES), "domain": "x", "dimensions": {"tenant": "a"}},
         "no domain 'x'"),
        ({"gate": "no-such-file.yaml"}, "no-such-file.yaml"),
        ({"limit": "1/hour", "trusted": ["everybody"]}, "trusted names networks"),
    ],
)  # fmt: skip
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        PenstockMiddleware(hello, **options)


async def test_a_key_that_is_no_text_is_an_error() -> None:
    app = PenstockMiddleware(hello, limit="1/hour", key=lambda request: 7)  # type: ignore[arg-type,return-value]  # what a user might do
    with pytest.raises(TypeError, match="a key is a non-empty str"):
        await call(app)


async def test_processes_share_a_limit_through_a_file(tmp_path: Any) -> None:
    apps = [
        PenstockMiddleware(hello, limit="3/hour", store=SharedMemoryStore(tmp_path / "limits"))
        for _ in range(2)
    ]
    found = [(await call(apps[number % 2]))[0]["status"] for number in range(5)]
    assert found == [200, 200, 200, 429, 429]


@pytest.mark.parametrize("limit", ["3/minute", "5/minute fixed_window", "2/hour lockout 1d"])
async def test_the_quick_way_is_the_same_as_the_long_one(limit: str) -> None:
    def key(request: Request) -> str:  # nobody knows of this one that it is quick
        return by_ip(request)

    events: list[Any] = []
    clock = FakeClock(1_767_225_600_500_000_000)
    apps = [
        PenstockMiddleware(
            hello, limit=limit, key=each, store=MemoryStore(clock=clock), clock=clock,
            hook=events.append,
        )
        for each in (by_ip, key)
    ]  # fmt: skip
    for _ in range(8):
        clock.advance(0.7)
        quick, long = [await call(app) for app in apps]
        assert quick == long
    assert len(events) % 2 == 0
    assert events[::2] == events[1::2]
