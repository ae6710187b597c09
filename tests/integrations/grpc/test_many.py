"""Many at once, and the package as a whole."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest

from integrations.grpc.kit import SYNC, Bench, eventually
from penstock.integrations.grpc.aio import RateLimitInterceptor


@pytest.mark.parametrize("kind", ["unary_unary", "stream_stream"])
def test_eight_threads_get_exactly_the_limit(bench: Bench, kind: str) -> None:
    target = bench.serve(bench.interceptor(bench.limiter("50/hour")))
    clients = [bench.connect(target) for _ in range(8)]
    start = threading.Barrier(8)

    def ask(client: Any) -> int:
        start.wait()
        return sum(client.call(kind).passed for _ in range(12))

    with ThreadPoolExecutor(8) as pool:
        passed = list(pool.map(ask, clients))
    assert sum(passed) == 50
    assert bench.script.runs == 50


def test_what_is_given_back_is_exact_with_eight_threads(bench: Bench) -> None:
    limiter = bench.limiter("50/hour")
    target = bench.serve(bench.interceptor(limiter, count_when=lambda status: False))
    clients = [bench.connect(target) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        passed = list(pool.map(lambda client: [client.call().passed for _ in range(20)], clients))
    assert all(map(all, passed))
    eventually(lambda: limiter.peek("ip:127.0.0.1/32").remaining == 50)


def test_a_client_of_grpc_aio(bench: Bench) -> None:
    target = bench.serve(bench.interceptor(bench.limiter("2/minute")))

    async def ask() -> list[Any]:
        async with grpc.aio.insecure_channel(target) as channel:
            call = channel.unary_unary("/test.Echo/unary_unary")
            answers = await asyncio.gather(*[call(b"hi") for _ in range(4)], return_exceptions=True)
        return [getattr(answer, "code", lambda: None)() for answer in answers]

    codes = bench.run(ask())
    assert sorted(map(str, codes)) == ["None"] * 2 + ["StatusCode.RESOURCE_EXHAUSTED"] * 2


@pytest.mark.parametrize("bench", [SYNC], indirect=True)
class TestExperimentalHandlers:
    """Parts of grpc.server that it calls experimental, and uses itself."""

    def test_answers_by_callback(self, bench: Bench) -> None:
        def watch(request: bytes, context: Any, send: Any) -> None:
            send(b"a")
            send(b"b")
            if request == b"end":
                send(None)
            else:
                senders.append(send)

        watch.experimental_non_blocking = True  # type: ignore[attr-defined]  # as gRPC asks
        senders: list[Any] = []
        seen: list[Any] = []
        interceptor = bench.interceptor(
            bench.limiter("2/minute"), count_when=lambda status: seen.append(status.code) or True
        )
        handlers = {"unary_stream": grpc.unary_stream_rpc_method_handler(watch)}
        client = bench.connect(bench.serve(interceptor, handlers=handlers))
        answer = client.call("unary_stream", ("end",))
        assert answer.replies == ["a", "b"]
        assert answer.trailing["ratelimit"] == '"default";r=1;t=30'
        assert seen == [grpc.StatusCode.OK]
        call = client.start("unary_stream", ("stay",))
        assert [next(call), next(call)] == [b"a", b"b"]
        call.cancel()
        eventually(lambda: len(seen) == 2)
        assert seen[1] is grpc.StatusCode.CANCELLED
        refused = client.call("unary_stream")
        assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(seen) == 2

    def test_a_pool_of_its_own(self, bench: Bench) -> None:
        names: list[str] = []

        def unary(request: bytes, context: Any) -> bytes:
            names.append(threading.current_thread().name)
            return b""

        with ThreadPoolExecutor(1, thread_name_prefix="own") as pool:
            unary.experimental_thread_pool = pool  # type: ignore[attr-defined]  # as gRPC asks
            handlers = {"unary_unary": grpc.unary_unary_rpc_method_handler(unary)}
            interceptor = bench.interceptor(bench.limiter("9/minute"))
            assert bench.connect(bench.serve(interceptor, handlers=handlers)).call().passed
        assert names == ["own_0"]


def test_the_aio_twin_has_the_same_options() -> None:
    from inspect import signature

    from penstock.integrations.grpc import RateLimitInterceptor as Twin

    assert signature(Twin) == signature(RateLimitInterceptor)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nobody_else_imports_grpc() -> None:
    code = "import penstock, penstock.integrations, sys; print('grpc' in sys.modules)"
    assert run(code) == "False"


@pytest.mark.parametrize("missing", ["grpc", "google.rpc"])
def test_who_lacks_grpc_is_told_what_to_install(missing: str) -> None:
    code = f"""
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == {missing!r} or name.startswith({missing + "."!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
try:
    import penstock.integrations.grpc
except ModuleNotFoundError as error:
    print(error)
"""
    told = run(code)
    assert missing in told
    assert told.endswith("pip install 'penstock[grpc]'")
