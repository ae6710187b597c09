"""A key-value store of every kind: memory, file, Valkey and a cluster; for tasks and threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kv.shells import SHELLS
from penstock.kv.file import FileBackend
from penstock.kv.memory import MemoryBackend
from stores.conftest import (  # noqa: F401  # fixtures are found by their names
    cluster,
    own_server,
    prefix,
    proxied,
    redis_url,
    sentinels,
    server_binary,
)

KINDS = ("memory", "file", "valkey", "cluster")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=list(SHELLS))
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def where(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Arguments with which every call opens the same store."""
    if kind == "memory":
        yield {"where": MemoryBackend()}
    elif kind == "file":
        yield {"where": f"file:{tmp_path / 'kv.db'}"}
    else:
        namespace = request.getfixturevalue("prefix")[-60:]
        if kind == "valkey":
            url = request.getfixturevalue("redis_url")
        else:
            url = cluster_url(request.getfixturevalue("cluster"))
        yield {"where": url, "namespace": namespace}


def cluster_url(of: Any) -> str:
    places = ",".join(f"127.0.0.1:{node.port}" for node in of.nodes[:3])
    return f"redis+cluster://{places}"


@pytest_asyncio.fixture
async def open_kv(where: dict[str, Any], shell: str) -> AsyncIterator[Callable[..., Any]]:
    """Opens another `KeyValue` of the same store; all are closed at the end."""
    opened: list[Any] = []

    def open_one(**options: Any) -> Any:
        arguments = {**where, **options}
        kv = SHELLS[shell](arguments.pop("where"), **arguments)
        opened.append(kv)
        return kv

    yield open_one
    for kv in opened:
        await kv.aclose()


@pytest.fixture
def kv(open_kv: Callable[..., Any]) -> Any:
    return open_kv()


@pytest.fixture
def small_log(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A log that keeps only three writes."""
    for backend in (MemoryBackend, FileBackend):
        _shorten(monkeypatch, backend)
    if kind in ("valkey", "cluster"):
        from penstock.kv.redis import RedisBackend

        _shorten(monkeypatch, RedisBackend)


def _shorten(monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    original = backend.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **{**options, "most_writes": 3})

    monkeypatch.setattr(backend, "__init__", init)
