"""Threads that are interrupted while they wait for the server, as by Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stores.proxy import Proxy
from stores.redis_server import wait_until

pytest.importorskip("redis")

from penstock import Limiter
from penstock.stores.redis import RedisStore
from stores.load import wait_for

LIMIT = "100000/day fixed_window align first_hit"
ROUNDS = 10


class Interrupted(BaseException):
    """Raised in the main thread, wherever it is."""


@pytest.fixture
def store(proxied: Proxy, prefix: str) -> Iterator[RedisStore]:
    def interrupt(*_: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    with RedisStore(proxied.url, prefix=prefix, deadline="60s", connect_timeout="60s") as made:
        made.connect()
        yield made
    signal.signal(signal.SIGUSR1, before)


def interrupted(call: Callable[[], Any], proxied: Proxy) -> None:
    """Call it and be interrupted while its answer is under way."""

    def interrupt() -> None:
        wait_until(lambda: proxied.held > 0, "the server has answered", 60)
        os.kill(os.getpid(), signal.SIGUSR1)

    proxied.hold()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted):
        call()
    thread.join()
    proxied.let_pass()


def taken(limiter: Limiter, expected: int) -> int:
    """What is taken when all that was under way has been done."""

    def now() -> int:
        return 100_000 - limiter.peek("k").remaining

    wait_for(lambda: now() == expected)
    return now()


@pytest.mark.parametrize("verb", ["hit", "hit_many", "hit_all", "wait", "reserve"])
def test_who_is_interrupted_has_taken_nothing(store: RedisStore, proxied: Proxy, verb: str) -> None:
    limiter = Limiter(LIMIT, store)
    calls: dict[str, Callable[[], Any]] = {
        "hit": lambda: limiter.hit("k"),
        "hit_many": lambda: limiter.hit_many(["k", "k"]),
        "hit_all": lambda: limiter.hit_all([("k", None), ("j", None)]),
        "wait": lambda: limiter.wait("k"),
        "reserve": lambda: limiter.reserve("k"),
    }
    for _ in range(ROUNDS):
        interrupted(calls[verb], proxied)
        assert taken(limiter, 0) == 0


def test_a_settlement_that_is_interrupted_happens(store: RedisStore, proxied: Proxy) -> None:
    limiter = Limiter(LIMIT, store)
    for _ in range(ROUNDS):
        held = limiter.reserve("k", cost=10)
        interrupted(lambda held=held: held.settle(3), proxied)  # type: ignore[misc]
        assert held.settled
    assert taken(limiter, 3 * ROUNDS) == 3 * ROUNDS


def test_a_block_that_is_interrupted_gives_back(store: RedisStore) -> None:
    limiter = Limiter(LIMIT, store)
    for _ in range(ROUNDS):
        with pytest.raises(Interrupted), limiter.reserve("k", cost=10):
            raise Interrupted
    assert taken(limiter, 0) == 0
