"""A gRPC server with limits for each method and API key.

The example starts a server on a free port, calls it, and prints what a client sees. The
service is written by hand so that it needs no generated code. In your own server, add only
``interceptors=``.

Run it: python examples/grpc_server.py
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
from google.rpc.error_details_pb2 import RetryInfo
from grpc_status import rpc_status

from penstock import Limiter
from penstock.integrations.grpc import Call, RateLimitInterceptor, by_metadata

LIMITS = {"/shop.Catalogue/Search": "3/minute", "/shop.Catalogue/Watch": "1/minute"}


def search(request: bytes, context: grpc.ServicerContext) -> bytes:
    return b"3 results for " + request


def watch(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    for price in (12, 11, 9):
        yield b"%s costs %d" % (request, price)


def limit_of(call: Call) -> str | None:
    return LIMITS.get(call.method)


def serve(pool: ThreadPoolExecutor) -> tuple[grpc.Server, int]:
    catalogue = grpc.method_handlers_generic_handler(
        "shop.Catalogue",
        {
            "Search": grpc.unary_unary_rpc_method_handler(search),
            "Watch": grpc.unary_stream_rpc_method_handler(watch),
        },
    )
    limits = RateLimitInterceptor(
        Limiter(), limit=limit_of, key=by_metadata("x-api-key", secret=True)
    )
    server = grpc.server(pool, handlers=[catalogue], interceptors=[limits])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def show_refusal(error: grpc.RpcError) -> None:
    print(f"  {error.code().name}: {error.details()}")
    for name, value in error.trailing_metadata():
        if not name.endswith("-bin"):
            print(f"    {name}: {value}")
    for packed in rpc_status.from_call(error).details:
        info = RetryInfo()
        if packed.Unpack(info):
            print(f"    RetryInfo: {info.retry_delay.ToNanoseconds() / 1e9:.1f} s")


def main() -> None:
    pool = ThreadPoolExecutor(4)
    server, port = serve(pool)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        find = channel.unary_unary("/shop.Catalogue/Search")
        follow = channel.unary_stream("/shop.Catalogue/Watch")
        for key in ("alice's key", "alice's key", "alice's key", "alice's key", "bob's key"):
            print(f"Search with {key}")
            try:
                answer, call = find.with_call(b"tea", metadata=[("x-api-key", key)])
                told = dict(call.trailing_metadata())["ratelimit"]
                print(f"  {answer.decode()}    ratelimit: {told}")
            except grpc.RpcError as error:
                show_refusal(error)
        for _ in range(2):
            print("Watch: a stream counts once")
            try:
                for price in follow(b"tea"):
                    print(f"  {price.decode()}")
            except grpc.RpcError as error:
                print(f"  {error.code().name}: {error.details()}")
    server.stop(None).wait()
    pool.shutdown()


if __name__ == "__main__":
    main()
