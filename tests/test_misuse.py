"""Arguments and imports that users of other libraries write first: the error says what to write."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest

import penstock
from penstock import AsyncLimiter, Limiter, MemoryStore

REDIS = "redis://localhost:6379"
WRONG: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("10/minute",), {"burst": 3}, "burst=: it is a part of the limit, {}('10/minute burst 3')"),
    (
        ("10/minute",),
        {"capacity": 3},
        "capacity=: it is a part of the limit, {}('10/minute burst 3')",
    ),
    (("10/minute",), {"lockout": "15m"}, "{}('10/minute lockout 15m')"),
    (("10/minute",), {"soft": (2, "5m")}, "{}('10/minute soft 2 for 5m')"),
    (("10/minute",), {"algorithm": "sliding_log"}, "{}('10/minute sliding_log')"),
    (("10/minute",), {"strategy": "moving-window"}, "{}('10/minute sliding_window')"),
    ((), {"rate": 10, "per": 60}, "rate=: write the limit as one text, {}('10/minute')"),
    ((), {"rate": "10/s"}, "rate=: write the limit as one text, {}('10/s')"),
    ((10,), {"per": 60}, "per=: write the limit as one text, {}('10/60s')"),
    ((10,), {"period": "hour"}, "{}('10/hour')"),
    ((), {"max_rate": 100, "time_period": 60}, "{}('100/minute')"),
    ((), {"times": 2, "seconds": 5}, "{}('2/minute')"),
    ((), {"default_limits": ["200 per day", "50 per hour"]}, "{}('200 per day; 50 per hour')"),
    ((10, 60), {}, "the first argument is the whole limit: write {}('10/60s')"),
    ((10, "minute"), {}, "write {}('10/minute')"),
    (
        ("10/minute", "user:1"),
        {},
        "is the store, not 'user:1': write {}('10/minute').hit('user:1')",
    ),
    (("10/minute", None, "user:1"), {}, "{} takes a limit and a store, the rest by name"),
    (("10/minute",), {"redis_url": REDIS}, "redis_url=: write {}('10/minute', store='" + REDIS),
    ((), {"limit": "10/minute", "storage_uri": REDIS}, "{}('10/minute', store='" + REDIS + "')"),
    (("10/minute",), {"redis": object()}, "{}('10/minute', store='redis://localhost:6379')"),
    (("10/minute",), {"key": "user:1"}, "a key is given with every hit, limiter.hit('user:42')"),
    ((), {"key_func": len}, "a key is given with every hit, limiter.hit('user:42')"),
    ((), {"app": object()}, "Penstock(app, '100/minute') of penstock.integrations.flask"),
    (("10/minute",), {"nmae": "x"}, "does not take nmae=: it takes limit, store, name, chance"),
]


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
@pytest.mark.parametrize(("args", "options", "message"), WRONG)
def test_a_limiter_says_what_to_write(
    kind: Any, args: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError) as error:
        kind(*args, **options)
    assert message.replace("{}", kind.__name__) in str(error.value)


def test_what_it_says_to_write_works() -> None:
    for text in (
        "10/60s",
        "10/minute burst 3",
        "200 per day; 50 per hour",
        "10/minute soft 2 for 5m",
    ):
        assert Limiter(text).hit("user:1")
    assert Limiter("10/minute", MemoryStore()).hit("user:1")


def test_a_password_in_a_url_is_not_shown() -> None:
    with pytest.raises(TypeError) as error:
        Limiter("10/minute", redis_url="redis://u:secret@host")  # type: ignore[arg-type]
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("url", ["redis:localhost", "reddis://localhost", "localhost", "shared:"])
def test_a_wrong_url_is_still_called_a_wrong_url(url: str) -> None:
    with pytest.raises(ValueError, match="store's URL"):
        Limiter("10/minute", url)


IMPORTS = {
    "limit": "@limiter.limit('5/minute') for a function; for a view, from penstock.integrations",
    "exempt": "from penstock.integrations.flask (or fastapi, django) import exempt",
    "PenstockMiddleware": "from penstock.integrations.asgi import PenstockMiddleware",
    "Penstock": "from penstock.integrations.flask import Penstock",
    "RateLimitInterceptor": "from penstock.integrations.grpc import RateLimitInterceptor",
    "ConcurrencyMiddleware": "from penstock.integrations.asgi import ConcurrencyMiddleware",
    "PacedTransport": "from penstock.client import PacedTransport",
    "AsyncPacedTransport": "from penstock.client import AsyncPacedTransport",
    "LeasedStore": "from penstock.stores.leased import LeasedStore",
    "FakeClock": "from penstock.testing import FakeClock",
    "StoreConformance": "from penstock.testing import StoreConformance",
    "RateLimiter": "from penstock import Limiter",
    "AsyncRateLimiter": "from penstock import AsyncLimiter",
    "RateLimitExceeded": "from penstock import LimitExceeded",
    "Rate": "from penstock import Limit",
    "parse": "Limit.parse('100/minute')",
}


@pytest.mark.parametrize("name", IMPORTS)
def test_an_import_from_the_wrong_place_says_what_to_write(name: str) -> None:
    with pytest.raises(ImportError) as error:
        exec(f"from penstock import {name}")
    assert IMPORTS[name] in str(error.value)
    _, _, write = str(error.value).partition("write: from ")
    module, _, names = write.partition(" import ")
    if module.replace(".", "").isalpha():  # what it says can be written
        assert hasattr(importlib.import_module(module), names.split()[0].strip(","))


def test_other_names_are_an_attribute_error() -> None:
    assert not hasattr(penstock, "nothing_like_it")
    with pytest.raises(ImportError, match="cannot import name"):
        exec("from penstock import nothing_like_it")


def calls() -> list[tuple[Any, str]]:
    """What people wrote at first, each with a part of what they are told."""
    from flask import Flask

    from penstock import Limit, RedisStore
    from penstock.client import PacedTransport
    from penstock.integrations.asgi import PenstockMiddleware
    from penstock.integrations.fastapi import limit
    from penstock.integrations.flask import Penstock

    wrong: Any = {"limit": limit, "Limit": Limit, "Redis": RedisStore, "Paced": PacedTransport}
    middleware: Any = PenstockMiddleware
    extension: Any = Penstock
    return [
        (lambda: Limiter("5/minute").hit("k", 5), "a cost is given by name, cost="),  # type: ignore[arg-type]
        (
            lambda: wrong["Limit"](5, seconds=60),
            "Limit does not take seconds=: write Limit(5, '30s')",
        ),
        (lambda: wrong["Redis"](host="localhost"), "RedisStore('redis://localhost:6379/0')"),
        (lambda: wrong["Redis"](), "RedisStore('redis://localhost:6379/0')"),
        (
            lambda: wrong["Paced"](rate="5/s"),
            "PacedTransport has no rate=: write limit='10/second'",
        ),
        (lambda: wrong["Paced"](max_retries=5), "write retries=5"),
        (lambda: wrong["Paced"](x=5), "it takes limit, key, retries"),
        (lambda: wrong["limit"](times=2, seconds=5), "the limit is one text, such as '2/5s'"),
        (lambda: wrong["limit"]("5/s", per_method=True), "the method is a part of the key"),
        (lambda: wrong["limit"]("5/s", group="x"), "limits are counted apart by name="),
        (lambda: wrong["limit"]("5/s", block=True), "always refused, unless shadow=True"),
        (lambda: middleware(None, limit="5/s", redis_url="redis://x"), "did you mean 'store'?"),
        (lambda: middleware(None, "5/s", "ip"), "takes one limit, and all else by name"),
        (lambda: middleware(None, "5/s", limit="5/s"), "takes one limit, and all else by name"),
        (lambda: extension("100/minute"), "write Penstock(app, '100/minute')"),
        (lambda: extension(Flask("x"), default_limits=["5/s"]), "did you mean 'limit'?"),
    ]


@pytest.mark.parametrize("number", range(16))
def test_what_was_written_first_says_what_to_write(number: int) -> None:
    call, message = calls()[number]
    with pytest.raises((TypeError, penstock.LimitError)) as error:
        call()
    assert message in str(error.value)


def test_middleware_takes_its_limit_first_and_is_found_beside_the_decorator() -> None:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from penstock.integrations.fastapi import PenstockMiddleware

    app = FastAPI()
    app.add_middleware(PenstockMiddleware, "1/minute")
    client = TestClient(app)
    assert [client.get("/").status_code for _ in range(2)] == [404, 429]


VERBS = {
    "acquire": r"acquire\(\): hit\(key\) decides at once, and wait\(key\) waits",
    "try_acquire": r"try_acquire\(\): hit\(key\) decides",
    "consume": r"consume\(\): hit\(key\) decides",
    "test": r"test\(\): peek\(key\) looks",
    "check": r"check\(\): hit\(key\) decides",
}


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_of_another_library_says_what_to_write(kind: Any, verb: str) -> None:
    with pytest.raises(AttributeError, match=f"{kind.__name__} has no {VERBS[verb]}"):
        getattr(kind("2/minute"), verb)
    assert not hasattr(kind, verb)


def test_a_limiter_is_no_block_by_itself() -> None:
    with (
        pytest.raises(AttributeError, match=r"write 'with limiter.slot\(key\):'"),
        Limiter("2/minute"),  # type: ignore[attr-defined]  # that is the point
    ):
        pass

    async def main() -> None:
        async with AsyncLimiter("2/minute"):  # type: ignore[attr-defined]  # that is the point
            pass

    with pytest.raises(AttributeError, match=r"write 'async with limiter.slot\(key\):'"):
        asyncio.run(main())


def test_names_that_nobody_expects_have_the_usual_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'hitt'"):
        Limiter("2/minute").hitt("k")  # type: ignore[attr-defined]  # that is the point


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("key_func", "write key=, a function of the call's arguments"),
        ("scope", "write key=, the same text for all functions of the scope"),
        ("rate", r"the limit first: @limiter.limit\('5/minute'\)"),
        ("block", "timeout=None to wait"),
        ("exempt_when", "cost=, a function of the call's arguments that returns 0"),
        ("per_method", "for views of web applications, @limit of penstock.integrations"),
        ("burst", r"a part of the limit, @limiter.limit\('5/minute burst"),
        ("capacity", r"a part of the limit, @limiter.limit\('5/minute burst"),
        ("colour", "it takes the limit, key, cost, timeout and enabled"),
    ],
)
def test_an_option_of_another_decorator_says_what_to_write(
    kind: Any, option: str, hint: str
) -> None:
    with pytest.raises(TypeError, match=f"@limiter.limit does not take {option}=: .*{hint}"):
        kind("2/minute").limit("5/minute", **{option: 1})
