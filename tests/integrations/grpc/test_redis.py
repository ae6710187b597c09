"""Over a store that has to be waited for: a real server, there and gone."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import grpc
import pytest

pytest.importorskip("redis")

from integrations.grpc.kit import Bench, eventually
from penstock import AsyncGate, Gate, Limiter
from penstock.stores.redis import RedisStore
from stores.redis_server import NO_SERVER, running_server

KEY = "ip:127.0.0.1/32"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server() as found:
        if found is None:
            pytest.skip(NO_SERVER)
        yield found


@pytest.fixture
def store(bench: Bench, url: str) -> Iterator[RedisStore]:
    with RedisStore(url, prefix=uuid4().hex, deadline="60s", connect_timeout="60s") as store:
        yield store
        bench.close()
        if bench.asynchronous:
            bench.run(store.close_async())


def test_a_limit(bench: Bench, kind: str, store: RedisStore) -> None:
    client = bench.limited(Limiter("2/hour", store=store))
    assert [client.call(kind).passed for _ in range(3)] == [True, True, False]


def test_several_limits_and_what_is_given_back(bench: Bench, store: RedisStore) -> None:
    limiter = Limiter(store=store)
    limits = ["3/hour", "9/day"]
    client = bench.limited(
        limiter, limit=limits, count_when=lambda status: status.code is not grpc.StatusCode.OK
    )
    assert [client.call().passed for _ in range(6)] == [True] * 6
    eventually(lambda: [limiter.peek(KEY, limit).remaining for limit in limits] == [3, 9])
    bench.script.steps = [("abort", grpc.StatusCode.UNAUTHENTICATED, "who?")]
    codes = [client.call("stream_stream").code for _ in range(4)]
    assert codes[-1] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(set(codes[:3])) == 1


def test_rules(bench: Bench, store: RedisStore) -> None:
    made = AsyncGate if bench.asynchronous else Gate
    rules = {"domain": "api", "descriptors": [{"key": "service", "limits": "2/hour"}]}
    client = bench.limited(gate=made.from_rules(rules, store=store))
    assert [client.call().passed for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("on_failure", "code"),
    [
        (None, grpc.StatusCode.OK),
        ("open", grpc.StatusCode.OK),
        ("closed", grpc.StatusCode.UNAVAILABLE),
    ],
)
def test_a_server_that_is_not_there(
    bench: Bench, on_failure: str | None, code: grpc.StatusCode
) -> None:
    with RedisStore("redis://127.0.0.1:1", connect_timeout="100ms") as store:
        client = bench.limited(Limiter("2/hour", store=store), on_failure=on_failure)
        answer = client.call("unary_stream")
        assert answer.code is code
        assert bench.script.runs == (code is grpc.StatusCode.OK)
        if on_failure == "closed":
            assert answer.details.startswith("Rate limits cannot be checked at the moment")
        bench.close()
        if bench.asynchronous:
            bench.run(store.close_async())
