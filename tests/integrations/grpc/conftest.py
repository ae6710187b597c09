from __future__ import annotations

from collections.abc import Iterator

import pytest

from integrations.grpc.kit import KINDS, STACKS, Bench, Loop


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(params=STACKS)
def bench(request: pytest.FixtureRequest, loop: Loop) -> Iterator[Bench]:
    """The same for every stack: threads, tasks, threads within tasks, and writers."""
    bench = Bench(request.param, loop)
    yield bench
    bench.close()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found
