"""Waiting for units that several processes take from one server."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

pytest.importorskip("redis")

from penstock import Limiter
from penstock.stores.redis import RedisStore


def test_waiters_of_several_limiters_lock_nobody_out(redis_url: str, prefix: str) -> None:
    """Each has its own line: only the server sees them all, and they race for every unit."""
    text, waits = "20/second burst 1 lockout 1h", 5
    taken: list[bool] = []
    with ExitStack() as cleanup:
        stores = [
            RedisStore(redis_url, prefix=prefix, deadline="60s", connect_timeout="60s")
            for _ in range(4)
        ]
        limiters = [Limiter(text, cleanup.enter_context(store)) for store in stores]

        def work(limiter: Limiter) -> None:
            for _ in range(waits):
                taken.append(bool(limiter.wait("k", timeout=30)))

        threads = [threading.Thread(target=work, args=(limiter,)) for limiter in limiters]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert taken == [True] * 20
        after = limiters[0].peek("k").retry_after
        assert after is not None
        assert after < 1.0
