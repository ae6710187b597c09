"""Stores by URL, everywhere a store is taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    AsyncGate,
    AsyncLimiter,
    ConcurrencyLimiter,
    Gate,
    Limiter,
    MemoryStore,
    SharedMemoryStore,
)
from penstock.integrations.wsgi import PenstockWSGI
from penstock.stores.url import as_store, store_from_url

RULES = {"domain": "api", "descriptors": [{"key": "user", "limits": "2/hour"}]}


@pytest.mark.parametrize("url", ["memory:", "memory", "memory://"])
def test_memory(url: str) -> None:
    store = store_from_url(url, max_keys=7)
    assert isinstance(store, MemoryStore)
    assert store.max_keys == 7


@pytest.mark.parametrize("head", ["shared:", "shared://"])
def test_a_shared_file(tmp_path: Path, head: str) -> None:
    store = store_from_url(f"{head}{tmp_path}/limits", max_keys=100)
    assert isinstance(store, SharedMemoryStore)
    assert store.name == f"shared:{tmp_path}/limits"
    assert Limiter("1/hour", store).hit("k")
    assert not Limiter("1/hour", f"shared:{tmp_path}/limits").hit("k")


def test_redis(redis_url: str, prefix: str) -> None:
    from penstock import RedisStore

    store = store_from_url(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s")
    assert isinstance(store, RedisStore)
    with store:
        assert Limiter("1/hour", store).hit("k")
        assert not Limiter("1/hour", store).hit("k")
    limiter = Limiter("1/hour", store=redis_url)
    assert isinstance(limiter.store, RedisStore)
    limiter.store.close()


def test_leases_over_redis(redis_url: str, prefix: str) -> None:
    from penstock.stores.leased import LeasedStore

    store = store_from_url(
        f"leased+{redis_url}", prefix=prefix, deadline="60s", connect_timeout="60s"
    )
    assert isinstance(store, LeasedStore)
    assert store.redis.prefix == prefix
    with store:
        assert Limiter("1/hour", store).hit("k")
        assert not Limiter("1/hour", store.redis).hit("k")


def test_only_redis_is_leased() -> None:
    for url in ("leased+memory:", "leased+shared:/tmp/x", "leased+redis:", "leased:"):
        with pytest.raises(ValueError, match="store's URL"):
            store_from_url(url)


def test_every_scheme_of_redis() -> None:
    from penstock import RedisStore

    for url in (
        "redis://localhost", "rediss://localhost", "valkey://localhost:1/2", "unix:///tmp/socket",
        "redis+sentinel://a:1,b:2/service", "redis+cluster://a:1,b:2",
    ):  # fmt: skip
        store = store_from_url(url)
        assert isinstance(store, RedisStore)
        store.close()


def test_everything_that_takes_a_store_takes_a_url(tmp_path: Path) -> None:
    url = f"shared:{tmp_path}/limits"
    stores: list[Any] = [
        Limiter("1/s", store=url).store,
        AsyncLimiter("1/s", store=url).store,
        Gate.from_rules(RULES, url).store,
        AsyncGate.from_rules(RULES, store=url).store,
        as_store(url),
    ]
    assert {store.name for store in stores} == {url}
    slots = ConcurrencyLimiter(1, store="redis://localhost")
    slots.close()
    PenstockWSGI(lambda environ, start: [b""], limit="1/s", store=url)
    with pytest.raises(TypeError, match="store must be a RedisStore"):
        ConcurrencyLimiter(1, store="memory:")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("reddis://:secret@host", "does not begin with 'reddis' \\(did you mean 'redis'\\?\\)"),
        ("Redis://:secret@host", "does not begin with 'Redis' \\(did you mean 'redis'\\?\\)"),
        ("postgres://u:secret@host/db", "does not begin with 'postgres': write 'memory:', 's"),
        ("localhost", "does not begin with 'localhost': write"),
        ("", "does not begin with ''"),
        ("redis:secret", "is incomplete after 'redis': write"),
        ("redis", "is incomplete after 'redis'"),
        ("shared:", "is incomplete after 'shared'"),
        ("shared://", "is incomplete after 'shared'"),
        ("memory:secret", "is incomplete after 'memory'"),
    ],
)
def test_a_wrong_url_says_what_to_write_and_shows_no_password(url: str, message: str) -> None:
    for take in (store_from_url, lambda url: Limiter("1/s", store=url)):
        with pytest.raises(ValueError, match=message) as caught:
            take(url)
        assert "secret" not in str(caught.value)
        assert "'redis://host:6379/0'" in str(caught.value)


def test_what_is_no_store() -> None:
    wrong: Any = 7
    with pytest.raises(TypeError, match=r"or a URL such as 'redis://localhost', not 7$"):
        Limiter("1/s", store=wrong)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_redis_is_imported_when_it_is_used() -> None:
    code = (
        "import sys, penstock; assert 'redis' not in sys.modules; assert 'RedisStore' in"
        " penstock.__all__; from penstock import RedisStore; assert 'redis' in sys.modules;"
        " print(RedisStore.__module__)"
    )
    assert run(code) == "penstock.stores.redis.store\n"


@pytest.mark.parametrize(
    "use", ["from penstock import RedisStore", "penstock.Limiter('1/s', 'redis://localhost')"]
)
def test_a_missing_extra_says_what_to_install(use: str) -> None:
    shown = run(f"import sys, penstock; sys.modules['redis'] = None; {use}")
    assert shown.endswith("RedisStore needs redis: pip install 'penstock[redis]'\n")
