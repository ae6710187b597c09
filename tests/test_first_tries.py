"""Mistakes that newcomers made with README and guides at hand: none of them passes in silence."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import ANY

import grpc
import pytest

from penstock import (
    AsyncConcurrencyLimiter,
    AsyncLimiter,
    CircuitBreaker,
    ConcurrencyLimiter,
    Gate,
    InvalidKey,
    Limiter,
    LimitError,
)
from penstock.integrations.asgi import PenstockMiddleware
from penstock.integrations.grpc import RateLimitInterceptor as InThreads
from penstock.integrations.grpc.aio import RateLimitInterceptor
from penstock.integrations.wsgi import PenstockWSGI


def test_a_decision_compared_with_a_truth_value_is_its_answer() -> None:
    """It would be unequal to both, so `if limiter.hit(key) == False` would refuse nobody."""
    limiter = Limiter("1/hour")
    allowed, refused = limiter.hit("k"), limiter.hit("k")
    assert allowed == True  # noqa: E712 - that is the point
    assert refused == False  # noqa: E712
    assert allowed != False  # noqa: E712
    assert allowed != refused
    assert allowed == allowed == ANY
    assert {allowed: "a", refused: "r"}[refused] == "r"


def test_a_verdict_compared_with_a_truth_value_is_its_answer() -> None:
    gate = Gate.from_rules("domain: a\ndescriptors: [{key: user, limits: 1/hour}]")
    allowed, refused = gate.check({"user": "42"}), gate.check({"user": "42"})
    assert allowed == True  # noqa: E712 - that is the point
    assert refused == False  # noqa: E712
    assert allowed != refused
    assert refused == refused == ANY
    assert len({allowed, refused}) == 2


@pytest.mark.parametrize("text", ["100/minute per user", "100 per minute by ip", "5/s for each"])
def test_a_limit_does_not_say_who_is_counted(text: str) -> None:
    with pytest.raises(LimitError, match=r"the key does, such as hit\('user:42'\) or key="):
        Limiter(text)


def test_a_number_as_key() -> None:
    with pytest.raises(InvalidKey, match="a key is a non-empty str, not int: 42; write '42'"):
        Limiter("1/hour").hit(42)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("store", ["localhost:6379", "redis.example.com:6379/1"])
def test_a_server_without_its_scheme(store: str) -> None:
    with pytest.raises(TypeError, match=rf"write Limiter\('5/min', store='redis://{store}'\)"):
        Limiter("5/min", store=store)


@pytest.mark.parametrize(
    ("middleware", "example"),
    [
        (PenstockMiddleware, r"app.add_middleware\(PenstockMiddleware, limit='5/minute'\)"),
        (PenstockWSGI, r"PenstockWSGI\(app, limit='5/minute'\)"),
    ],
)
def test_a_limit_in_place_of_the_application(middleware: Any, example: str) -> None:
    with pytest.raises(TypeError, match=f"the first argument is the application: write {example}"):
        middleware("5/minute")


@pytest.mark.parametrize("option", ["key", "cost"])
def test_a_function_without_the_request(option: str) -> None:
    """As Flask-Limiter's are. Otherwise every request would be a 500."""

    def get_remote_address() -> str:
        return "127.0.0.1"

    for limited in (PenstockMiddleware, PenstockWSGI, InThreads):
        with pytest.raises(TypeError, match=f"{option} is a function of one argument.*get_remote"):
            limited(None, limit="5/minute", **{option: get_remote_address})


def test_the_address_has_no_host() -> None:
    """In Starlette, `request.client.host` is the address. Here, `request.client` is."""
    app = PenstockMiddleware(lambda *_: None, limit="5/minute", key=lambda r: r.client.host)
    scope = {"type": "http", "path": "/", "headers": [], "client": ("192.0.2.1", 1)}
    with pytest.raises(AttributeError) as error:
        asyncio.run(app(scope, None, None))
    assert error.value.__notes__ == ["request.client is the address as text: write request.client"]


def test_a_block_around_a_concurrency_limiter_takes_no_slot() -> None:
    with (
        pytest.raises(TypeError, match=r"takes no slot: write 'with limiter.slot\(key\):'"),
        ConcurrencyLimiter(1),
    ):
        pass

    async def main() -> None:
        async with AsyncConcurrencyLimiter(1):
            pass

    with pytest.raises(TypeError, match=r"write 'async with limiter.slot\(key\):'"):
        asyncio.run(main())
    with pytest.raises(AttributeError, match=r"acquire\(\): write 'with limiter.slot\(key\):'"):
        ConcurrencyLimiter(1).acquire()  # type: ignore[arg-type, operator]  # that is the point


def test_the_wrong_kind_of_block() -> None:
    with (
        pytest.raises(AttributeError, match=r"write 'async with limiter.slot\(key\):'"),
        AsyncLimiter("1/hour").slot("k"),  # type: ignore[attr-defined]  # that is the point
    ):
        pass

    async def main() -> None:
        async with Limiter("1/hour").slot("k"):  # type: ignore[attr-defined]  # the same
            pass

    with pytest.raises(AttributeError, match="write 'with', or use an AsyncLimiter"):
        asyncio.run(main())


def test_a_breaker_without_parentheses() -> None:
    with pytest.raises(TypeError, match=r"write @CircuitBreaker\(\), with parentheses"):
        CircuitBreaker(len)  # type: ignore[arg-type]  # that is the point


def test_the_interceptor_of_the_other_kind_of_server(caplog: pytest.LogCaptureFixture) -> None:
    """grpc.server takes any object: without an error, every call would fail for another reason."""
    caplog.set_level(logging.ERROR)
    interceptors: Any = [RateLimitInterceptor("2/hour")]
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, interceptors=interceptors)
        method = grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
        service = grpc.method_handlers_generic_handler("demo.Demo", {"Greet": method})
        server.add_generic_rpc_handlers([service])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            with (
                grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
                pytest.raises(grpc.RpcError),
            ):
                channel.unary_unary("/demo.Demo/Greet")(b"", timeout=60)
        finally:
            server.stop(None).wait()
    assert "this interceptor is for grpc.aio.server" in caplog.text
