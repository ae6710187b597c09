"""Real Redis or Valkey servers for the tests of this folder, started when the first one asks.

Where none can be had, the tests that ask are skipped, and say why.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stores import redis_server
from stores.proxy import Proxy

if TYPE_CHECKING:  # they import redis, which the other tests of this folder do without
    from stores.redis_cluster import Cluster
    from stores.redis_sentinel import SentinelSetup
    from stores.redis_twins import Server

_RUN = f"penstock-test-{uuid.uuid4().hex}"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A server that all tests share, maybe with strangers: use keys with `prefix` only."""
    redis = pytest.importorskip("redis")
    with redis_server.running_server() as url:
        if url is None:
            pytest.skip(redis_server.NO_SERVER)
        yield url
        with redis.Redis.from_url(url) as client:
            names = list(client.scan_iter(f"*{_RUN}*", count=1000))
            for start in range(0, len(names), 1000):
                client.unlink(*names[start : start + 1000])


@pytest.fixture
def prefix() -> str:
    """For the names of keys; each test has its own, and the keys go at the end of the run."""
    return f"{_RUN}-{next(_numbers)}"


@pytest.fixture(scope="session")
def server(redis_url: str) -> Iterator[Server]:
    """The shared server with the script in it: see redis_twins.py."""
    from stores.redis_twins import Server, redis

    with redis.Redis.from_url(redis_url) as client:
        yield Server(client, _RUN)


@pytest.fixture(scope="session")
def server_binary() -> str:
    """What to start servers from that a test may kill; a borrowed one will not do."""
    pytest.importorskip("redis")
    binary = redis_server.find_binary()
    if binary is None:
        pytest.skip(redis_server.NO_SERVER)
    return binary


@pytest.fixture
def own_server(server_binary: str) -> Iterator[Callable[..., redis_server.Server]]:
    """Starts servers that the test may kill: ``own_server("--maxmemory", "3mb")``.

    With ``own_clock=True`` the server's clock can be stepped; with ``port`` it is on that one.
    """
    with ExitStack() as cleanup:

        def start(*options: str, port: int = 0, **kind: Any) -> redis_server.Server:
            try:
                made = redis_server.Server(server_binary, **kind)
                cleanup.callback(made.stop)
                made.start(*options, port=port)
            except redis_server.Unavailable as error:
                pytest.skip(str(error))
            return made

        yield start


@pytest.fixture(scope="module")
def cluster(server_binary: str) -> Iterator[Cluster]:
    """Three masters with a replica each; a test that breaks it calls its `heal`."""
    from stores.redis_cluster import Cluster

    made = Cluster(server_binary)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def sentinels(server_binary: str) -> Iterator[SentinelSetup]:
    """A master, a replica and three sentinels; a test that breaks it calls its `heal`."""
    from stores.redis_sentinel import SentinelSetup

    made = SentinelSetup(server_binary)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def proxied(redis_url: str) -> Iterator[Proxy]:
    """A `Proxy` before the shared server."""
    if not redis_url.startswith("redis://"):
        pytest.skip("a proxy needs a server that is reached by plain TCP")
    with Proxy(redis_url) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Certificate and key for `Proxy`'s ``tls``; the certificate is its own authority."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("a certificate takes the openssl command")
    folder = tmp_path_factory.mktemp("tls")
    made, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-addext", "keyUsage=critical,digitalSignature,keyCertSign",
            "-keyout", str(key), "-out", str(made),
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return made, key
