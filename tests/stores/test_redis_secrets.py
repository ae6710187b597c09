"""A password is in no message, whatever is wrong with the URL or with the server."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from urllib.parse import quote

import pytest

from stores.proxy import Proxy
from stores.redis_server import Server

pytest.importorskip("redis")

import redis

from penstock import AsyncLimiter, Limiter
from penstock.errors import StoreError, StoreUnavailable
from penstock.events import Event
from penstock.stores.redis import RedisStore

Start = Callable[..., Server]
SECRET = "hunter2"

# What people write: right, not escaped, in the wrong place, with something else wrong.
URLS = [
    "redis://:hunter2@127.0.0.1:1",
    "redis://user:hunter2@127.0.0.1:1/0",
    "redis://user:hunter2@127.0.0.1:port/0",
    "redis://user:hunter2@127.0.0.1:99999/0",
    "redis://user:hunter2@127.0.0.1:1/zero",
    "redis://user:hunter2@127.0.0.1:1/0/1",
    "redis://user:hunter2@[::1",
    "redis://user:hunter2@",
    "redis://user:hunter2",
    "redis://:hunter2",
    "redis:user:hunter2@127.0.0.1",
    "redis:/user:hunter2@127.0.0.1",
    "redis//user:hunter2@127.0.0.1",
    "user:hunter2@127.0.0.1:6379",
    "hunter2@127.0.0.1:6379",
    "http://user:hunter2@127.0.0.1:1",
    "redis://user:hunter2@127.0.0.1:1?sokcet_timeout=1",
    "redis://user:hunter2@127.0.0.1:1?health_check_interval=hunter2",
    "redis://127.0.0.1:1?password=hunter2",
    "redis://127.0.0.1:port?password=hunter2",
    "redis://user@127.0.0.1:port/0?password=hunter2&username=x",
    "rediss://user:hunter2@127.0.0.1:1?ssl_cert_reqs=nonsense",
    "redis://user:/hunter2@127.0.0.1:1/0",
    "redis://user:12/hunter2@127.0.0.1:1/0",
    "redis://user:?hunter2@127.0.0.1:1/0",
    "redis://user:#hunter2@127.0.0.1:1/0",
    "redis://user:@hunter2@127.0.0.1:1/0",
    "redis://user:[hunter2@127.0.0.1:1/0",
    "redis://user:%zzhunter2@127.0.0.1:1/0",
    "redis://user: hunter2\n@127.0.0.1:1/0",
    "redis://user:hunter2%23@127.0.0.1:1/0",
    "unix://user:hunter2@/nowhere/at/all?db=0",
    "unix://user:hunter2@/nowhere/at/all?db=zero",
    "redis://127.0.0.1:port?password=x@hunter2",
    "redis+sentinel://user:/hunter2@127.0.0.1:1",
    "redis+sentinel://user:/hunter2@127.0.0.1:1/name",
    "redis+sentinel://user:hunter2@127.0.0.1:1",
    "redis+sentinel://user:hunter2@127.0.0.1:1,127.0.0.1:2/name",
    "redis+sentinel://127.0.0.1:1/name?sentinel_password=hunter2",
    "redis+sentinel://127.0.0.1:port/name?sentinel_password=hunter2",
    "redis+sentinel://user:hunter2@127.0.0.1:1/name/zero",
    "redis+cluster://user:hunter2@127.0.0.1:1,127.0.0.1:2",
    "redis+cluster://user:hunter2@127.0.0.1:1,127.0.0.1:port",
    "redis+cluster://user:hunter2@127.0.0.1:1/7",
    "redis+cluster://user:/hunter2@127.0.0.1:1",
    "valkey+cluster://user:hunter2@,",
]


class Ear:
    """Everything that anybody gets to see."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        self._log = caplog
        self.heard: list[str] = []

    def hear(self, *things: object) -> None:
        for thing in things:
            self.heard += [str(thing), repr(thing)]
            if isinstance(thing, BaseException):
                self.heard.append("".join(traceback.format_exception(thing)))

    def check(self, secret: str = SECRET) -> None:
        logged = [record.getMessage() for record in self._log.records]
        logged += [str(record.exc_info) for record in self._log.records]
        for text in (*self.heard, *logged, self._log.text):
            assert secret not in text, text


@pytest.fixture
def ear(caplog: pytest.LogCaptureFixture) -> Ear:
    return Ear(caplog)


def made_of(url: str) -> tuple[RedisStore | None, Exception | None]:
    try:
        return RedisStore(url, connect_timeout="50ms"), None
    except Exception as error:
        return None, error


@pytest.mark.parametrize("url", URLS)
async def test_a_password_in_a_url_stays_there(url: str, ear: Ear) -> None:
    store, error = made_of(url)
    if store is None:
        assert isinstance(error, StoreError), "what is wrong with a URL is said by us"
        # As a traceback would show it, but for the source lines: this file's are full of URLs.
        ear.hear(*error.args)
        assert error.__cause__ is None
        assert error.__suppress_context__ or error.__context__ is None
        ear.check()
        return
    store.subscribe(lambda event: ear.hear(event))
    try:
        with pytest.raises(StoreUnavailable) as raised:
            await store.connect_async()
        ear.hear(raised.value)
        limiter, threads = AsyncLimiter("1/second", store=store), Limiter("1/second", store=store)
        assert (await limiter.hit("k")).degraded
        assert threads.hit("k").degraded
        with pytest.raises(StoreUnavailable) as raised:
            await limiter.reset("k")
        ear.hear(raised.value, store, limiter, threads, store.counters)
        ear.hear(store._settings, store._settings.target, *store._settings.target.seeds)
    finally:
        await store.close_async()
        store.close()
    ear.check()


@pytest.mark.parametrize("secret", ["hunter2", "pa ss/w?o#r@d:%1", "é\u2603x", "a'b\"c\\d"])
async def test_a_password_that_is_wrong_or_missing(
    secret: str, own_server: Start, ear: Ear
) -> None:
    server = own_server("--requirepass", "something else")
    place = f"127.0.0.1:{server.port}"
    for where in (
        f"redis://:{quote(secret, safe='')}@{place}",
        f"redis://user:{quote(secret, safe='')}@{place}/3",
        f"redis://{place}?password={quote(secret, safe='')}",
        redis.Redis(port=server.port, password=secret),
        redis.asyncio.Redis(port=server.port, username="user", password=secret),
        f"redis://{place}",
    ):
        store = RedisStore(where)
        events: list[Event] = []
        store.subscribe(events.append)
        with pytest.raises(StoreUnavailable) as raised:
            await store.connect_async()
        assert any(word in str(raised.value) for word in ("username-password", "uthenticat"))
        with pytest.raises(StoreUnavailable) as again:
            store.connect()
        assert (await AsyncLimiter("1/second", store=store).hit("k")).degraded
        assert events
        ear.hear(raised.value, again.value, store, *events)
        await store.close_async()
        store.close()
    for shape in (secret, quote(secret, safe=""), repr(secret)[1:-1], ascii(secret)[1:-1]):
        ear.check(shape)


async def test_a_server_that_repeats_the_password(proxied: Proxy, ear: Ear) -> None:
    proxied.reply(b"-WRONGPASS hunter2 is not the password\r\n", "AUTH")
    store = RedisStore(proxied.url.replace("//", f"//user:{SECRET}@"))
    store.subscribe(ear.hear)
    with pytest.raises(StoreUnavailable) as raised:
        await store.connect_async()
    assert "is not the password" in str(raised.value)
    assert (await AsyncLimiter("1/second", store=store).hit("k")).degraded
    ear.hear(raised.value)
    await store.close_async()
    ear.check()


async def test_a_right_password_is_heard_of_nowhere(own_server: Start, ear: Ear) -> None:
    server = own_server("--requirepass", SECRET)
    async with RedisStore(server.url) as store:
        store.subscribe(ear.hear)
        assert not (await AsyncLimiter("1/second", store=store).hit("k")).degraded
        server.kill()
        while not (await AsyncLimiter("1/second", store=store).hit("k")).degraded:
            pass
        ear.hear(store, store.state)
    ear.check()
