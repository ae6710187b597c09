"""The script of the leases, asked directly at a real server."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytest.importorskip("redis")

import redis

from penstock.concurrency.lease_server import _SCRIPT


class Script:
    """The script as one key's, in seconds."""

    def __init__(self, client: redis.Redis, prefix: str, classes: int) -> None:
        self._client = client
        self.names = [f"{prefix}:{{k}}:{n}" for n in ("held", "seen", *range(classes))]

    def __call__(self, *args: Any) -> Any:
        told = [round(arg * 1e6) if isinstance(arg, float) else arg for arg in args]
        return self._client.eval(_SCRIPT, len(self.names), *self.names, *told)


def test_the_script_grants_renews_and_forgets(redis_url: str, prefix: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        script = Script(client, prefix, 1)
        assert script("ask", "a:1", 60.0, "a", 0, 1, 2) == [1, 0, 0]
        assert script("ask", "a:1", 60.0, "a", 0, 1, 2) == [1, 0, 0], "a lost answer costs nothing"
        assert script("ask", "b:1", 0.05, "b", 0, 1, 2) == [1, 1, 0]
        assert script("ask", "c:1", 60.0, "c", 0, 1, 2) == [0, 2, 0]
        assert not client.exists(script.names[1], script.names[2]), "who does not stay is unknown"
        assert script("renew", 60.0, "a:1", "c:1") == [1, 0]
        time.sleep(0.06)
        assert script("renew", 60.0, "b:1") == [0], "what has ended is not brought back"
        assert script("enrol", 60.0, "d:1") == [1]
        assert script("enrol", 60.0, "e:1") == [1], "whoever runs already is counted"
        assert script("ask", "c:1", 60.0, "c", 0, 1, 2) == [0, 3, 0]
        assert script("release", "a:1", "d:1", "nobody") == 2
        assert script("ask", "c:1", 60.0, "c", 0, 1, 2) == [1, 1, 0]
        assert 59_000 < client.pttl(script.names[0]) <= 60_001
        assert script("release", "c:1", "e:1") == 2
        assert not client.exists(script.names[0])


def test_the_script_grants_in_turn(redis_url: str, prefix: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        script = Script(client, prefix, 1)
        assert script("ask", "a:1", 60.0, "a", 0, 1, 1) == [1, 0, 0]
        assert script("ask", "b:1", 60.0, "b", 60.0, 1, 1) == [0, 1, 0]
        assert script("ask", "c:1", 60.0, "c", 60.0, 1, 1) == [0, 1, 0], "none free: none is left"
        assert script("release", "a:1") == 1
        assert script("ask", "a:2", 60.0, "a", 60.0, 1, 1) == [0, 0, 2]
        assert script("ask", "c:2", 60.0, "c", 60.0, 1, 1) == [0, 0, 1]
        assert script("ask", "b:2", 60.0, "b", 0.01, 1, 1) == [1, 0, 0]
        assert script("ask", "b:3", 60.0, "b", 0.01, 1, 1) == [0, 1, 0]
        assert script("release", "b:2") == 1
        assert client.zrange(script.names[2], 0, -1) == [b"c", b"a", b"b"]
        time.sleep(0.02)
        assert script("ask", "a:3", 60.0, "a", 60.0, 1, 1) == [0, 0, 1]
        assert client.zrange(script.names[2], 0, -1) == [b"c", b"a"], "who did not come has gone"
        assert script("ask", "c:3", 60.0, "c", 60.0, 1, 1) == [1, 0, 0]


def test_the_script_knows_shares(redis_url: str, prefix: str) -> None:
    """Two classes, of which the lower may use two of four slots."""
    with redis.Redis.from_url(redis_url) as client:
        script, queues = Script(client, prefix, 2), (2, 4)
        for number in range(2):
            assert script("ask", f"a:{number}", 60.0, "a", 0, 1, *queues) == [1, number, 0]
        assert script("ask", "low:1", 60.0, "low", 60.0, 1, *queues) == [0, 2, 0]
        assert script("ask", "high:1", 60.0, "high", 60.0, 2, *queues) == [1, 2, 0]
        assert script("ask", "low:2", 60.0, "low", 60.0, 2, *queues) == [1, 3, 0], "another class"
        assert client.zcard(script.names[1]) == 0
