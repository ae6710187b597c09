from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.wires.grpc import h2
from wires.grpc.kit import Bench
from wires.grpc.serving import WIRES, Served, serve


@pytest.fixture
async def benches() -> AsyncIterator[Callable[..., Bench]]:
    """Makes connections without sockets; `Bench` says how."""
    if not h2.available():
        pytest.skip("the nghttp2 extension was not built")
    made: list[Bench] = []

    def make(*args: Any, **options: Any) -> Bench:
        made.append(Bench(*args, **options))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
async def bench(benches: Callable[..., Bench]) -> Bench:
    return benches()


@pytest.fixture(params=WIRES)
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """The same methods on a real socket, on each wire."""
    async with serve(request.param) as served:
        yield served


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca, server, other and client .pem and .key, made for these tests."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program to make certificates")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True, timeout=120)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "stranger-ca"):
        openssl("req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.pem",
                "-days", "30", "-subj", f"/CN={name}")  # fmt: skip
    (folder / "names.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name, authority in [
        ("server", "ca"),
        ("other", "ca"),
        ("client", "ca"),
        ("stranger", "stranger-ca"),
    ]:
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr",
                "-subj", f"/CN={name}")  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem",
                "-CAkey", f"{authority}.key", "-CAcreateserial", "-out", f"{name}.pem",
                "-days", "30", "-extfile", "names.ext")  # fmt: skip
    return folder
