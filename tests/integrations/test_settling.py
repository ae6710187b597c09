"""Giving back what need not be counted, when things go wrong; and failures that come late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from integrations.asgi.test_limit import call, hello, scope, statuses
from penstock import (
    AsyncGate,
    AsyncLimiter,
    CircuitBreaker,
    Gate,
    MemoryStore,
    StoreError,
)
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.wsgi import BreakerWSGI, PenstockWSGI
from penstock.stores.base import Counters
from penstock.stores.redis import RedisStore
from penstock.testing import FakeClock


def _rules(limit: str) -> dict[str, Any]:
    return {"domain": "d", "descriptors": [{"key": "remote_address", "limits": limit}]}


ENVIRON = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "203.0.113.7"}


class Keeping(MemoryStore):
    """Takes, and fails when it shall give back."""

    def make_counters(self, limit: Any) -> Counters:
        made = super().make_counters(limit)

        class Kept(Counters):
            def hit(self, key: str, cost: int) -> Any:
                return made.hit(key, cost)

            def refund(self, key: str, cost: int = 1, mark: int = 0) -> Any:
                raise StoreError("gone")

        return Kept(limit, None)


RULES = _rules("2/hour")

# A store that fails afterwards ---------------------------------------------------------------


@pytest.mark.parametrize("gate", [False, True])
async def test_an_answer_is_not_spoiled_by_a_store_that_keeps_what_it_took(
    gate: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def options(kind: Any) -> dict[str, Any]:
        made = {"gate": kind.from_rules(RULES, Keeping())} if gate else {
            "limit": "2/hour", "store": Keeping(),
        }  # fmt: skip
        return {**made, "count_when": lambda response: False}

    sent = await call(PenstockMiddleware(hello, **options(AsyncGate)))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert "was not given back" in caplog.text

    def home(environ: Any, start: Any) -> list[bytes]:
        start("200 OK", [])
        return [b"home"]

    app = PenstockWSGI(home, **options(Gate))
    assert list(app(dict(ENVIRON), lambda *args: print)) == [b"home"]


LISTED = {**RULES, "deny": {"remote_address": ["203.0.113.7"]}}


@pytest.mark.parametrize(
    ("option", "of_the_store", "rules", "status"),
    [
        (None, "open", RULES, 200),
        (None, "closed", RULES, 429),
        ("closed", "open", RULES, 503),
        ("closed", "local", RULES, 503),
        ("open", "closed", RULES, 200),
        ("open", "closed", LISTED, 403),
        ("closed", "open", _rules("2/hour on_failure open"), 200),
        ("open", "open", _rules("2/hour on_failure closed"), 429),
    ],
)
async def test_what_a_middleware_says_of_failures_goes_before_the_store(
    option: str | None, of_the_store: str, rules: Any, status: int
) -> None:
    store = RedisStore("redis://127.0.0.1:1", on_failure=of_the_store)  # nobody is there
    gate = AsyncGate.from_rules(rules, store)
    app = PenstockMiddleware(hello, gate=gate, on_failure=option)
    assert await statuses(app, *[scope()] * 2) == [status] * 2
    await store.close_async()


# Clients that leave --------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError, asyncio.CancelledError])
async def test_who_leaves_before_the_answer_is_given_back_all_the_same(error: Any) -> None:
    app = PenstockMiddleware(hello, limit="1/hour", count_when=lambda r: r.status == 401)

    async def gone(message: Any) -> None:
        raise error("the client has left")

    for _ in range(3):
        with pytest.raises(error):
            await app(scope(), call, gone)  # type: ignore[arg-type]  # nobody receives
    assert await statuses(app, scope()) == [200]


# Websockets that are not accepted ------------------------------------------------------------

DENIED = {"type": "websocket.http.response.start", "status": 500, "headers": []}


@pytest.mark.parametrize(
    ("answer", "status"), [(DENIED, 500), ({"type": "websocket.close"}, 403)]
)  # fmt: skip
async def test_a_websocket_that_is_turned_away_is_settled_by_its_status(
    answer: Any, status: int
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(answer)

    seen: list[int] = []

    def count(response: Any) -> bool:
        seen.append(response.status)
        return False

    limited = PenstockMiddleware(app, limit="1/hour", count_when=count)
    asked = {"type": "websocket", "path": "/", "headers": [], "client": ("203.0.113.7", 1)}
    for _ in range(2):
        sent = await call(limited, dict(asked))
        assert sent[0]["type"] == answer["type"]
        names = [name for name, _ in sent[0].get("headers", ())]
        assert (b"ratelimit" in names) == ("headers" in answer)
    assert seen == [status, status]


# WSGI applications that begin late -----------------------------------------------------------


class Body:
    """Never ends, and counts how often it is closed."""

    closed = 0

    def __iter__(self) -> Body:
        return self

    def __next__(self) -> bytes:
        return b"piece"

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("breaker", [False, True])
def test_a_body_is_closed_once(breaker: bool) -> None:
    body = Body()

    def app(environ: Any, start: Any) -> Body:
        return body

    if breaker:
        limited: Any = BreakerWSGI(app, CircuitBreaker())
    else:
        limited = PenstockWSGI(app, limit="9/hour", count_when=lambda response: True)
    answer = limited(dict(ENVIRON), print)
    pieces = iter(answer)
    assert next(pieces) == b"piece"
    answer.close()
    del pieces, answer
    assert body.closed == 1


def test_a_breaker_hears_of_a_generator_that_fails() -> None:
    def broken(environ: Any, start: Any) -> Any:
        raise RuntimeError("as asked")
        yield b""

    breaker = CircuitBreaker(failures=2)
    app = BreakerWSGI(broken, breaker)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            list(app(dict(ENVIRON), print))
    assert breaker.state == "open"


def test_a_probe_is_given_back_if_nobody_wants_the_answer() -> None:
    def later(environ: Any, start: Any) -> Any:
        start("200 OK", [])
        yield b"home"

    clock = FakeClock()
    breaker = CircuitBreaker(failures=1, probes=1, pause=1, longest_pause=1, clock=clock)
    permit = breaker.allows()
    assert permit is not None
    breaker.failed(permit, "as asked")
    clock.advance(2)
    app: Any = BreakerWSGI(later, breaker)
    app(dict(ENVIRON), lambda *args: print).close()  # the client has left
    answer = app(dict(ENVIRON), lambda *args: print)
    assert list(answer) == [b"home"]
    answer.close()
    assert breaker.state == "closed"


# Rules: exactly what was taken ---------------------------------------------------------------

WINDOW = _rules("2/minute fixed_window")


def test_what_rules_took_in_another_window_is_not_given_back_in_this_one() -> None:
    clock = FakeClock(1_767_225_600 * 10**9 + 59 * 10**9)
    gate = Gate.from_rules(WINDOW, MemoryStore(clock=clock), clock=clock)
    statuses: list[str] = []

    def app(environ: Any, start: Any) -> list[bytes]:
        if environ["PATH_INFO"] == "/slow":
            clock.advance(2)
            ask("/")  # somebody else, in the next window
        start("200 OK", [("X-Path", environ["PATH_INFO"])])
        return []

    limited = PenstockWSGI(
        app, gate=gate, clock=clock, count_when=lambda r: r.headers["x-path"] != "/slow"
    )

    def ask(path: str) -> None:
        environ = {**ENVIRON, "PATH_INFO": path}
        list(limited(environ, lambda status, *rest: statuses.append(status[:3])))

    for path in ("/slow", "/", "/"):
        ask(path)
    assert statuses == ["200", "200", "200", "429"]


async def test_rules_that_changed_meanwhile_give_back_to_the_limit_that_was_asked() -> None:
    store = MemoryStore()
    gate = AsyncGate.from_rules(RULES, store)

    async def reloading(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/reload":
            gate.replace(_rules("5/day"))
        await hello(scope, receive, send)

    app = PenstockMiddleware(reloading, gate=gate, count_when=lambda response: False)
    await call(app, scope("/reload"))
    gate.replace(RULES)
    assert await statuses(app, scope(), scope(), scope()) == [200] * 3
    keys = [f"d|remote_address={address}" for address in ("203.0.113.7", "203.0.113.7/32")]
    limiter = AsyncLimiter(store=store)
    assert [(await limiter.peek(key, "5/day")).remaining for key in keys] == [5, 5]
    assert [(await limiter.peek(key, "2/hour")).remaining for key in keys] == [2, 2]
