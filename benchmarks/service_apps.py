"""Servers for the benchmark of the service: ``python -m benchmarks.service_apps NAME``.

Each prints its port. The peers do the least that an honest server does: read the message,
decide, write the answer.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from typing import Any

RULES = """
domain: bench
descriptors:
  - key: user
    limits: 1000000000/second
  - key: path
    limits: 1000000000/second
  - key: tenant
    limits: 1000000000/second
  - key: other
    limits: 5/second
"""


def penstock_grpc(wire: str, *, switched: bool = False) -> None:
    """As `penstock serve` runs it, but for the ports that it prints.

    ``switched`` puts a rule in shadow that no request is about.
    """
    import tempfile

    from penstock.running.app import App
    from penstock.running.event_loop import run
    from penstock.running.settings import Settings

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as rules:
        rules.write(RULES)
        rules.flush()

        async def main() -> None:
            settings = Settings(
                rules=(rules.name,), grpc=f"127.0.0.1:{_free_port()}", http="127.0.0.1:0",
                admin="off", wire=wire, watch=False,
            )  # fmt: skip
            app = App(settings)
            running = asyncio.create_task(app.run())
            ready = asyncio.create_task(app.ready.wait())
            await asyncio.wait([ready, running], return_when=asyncio.FIRST_COMPLETED)
            if switched and app.workers is not None:
                await app.workers.apply({"do": "mode", "mode": "shadow", "name": "bench/other"})
            for name in ("grpc", "http"):
                print(app.listening[name].rpartition(":")[2], flush=True)
            await running

        run(main())


def grpcio_minimal() -> None:
    """grpc.aio with generated messages and a dictionary as its store."""
    import grpc
    from envoy.service.ratelimit.v3 import rls_pb2

    counts: dict[str, int] = {}

    async def should_rate_limit(request: Any, context: Any) -> Any:
        answer = rls_pb2.RateLimitResponse(overall_code=1)
        for descriptor in request.descriptors:
            key = "|".join(f"{entry.key}={entry.value}" for entry in descriptor.entries)
            counts[key] = counts.get(key, 0) + max(1, request.hits_addend)
            answer.statuses.add(code=1, limit_remaining=1_000_000_000 - counts[key])
        return answer

    async def main() -> None:
        server = grpc.aio.server()
        method = grpc.unary_unary_rpc_method_handler(
            should_rate_limit,
            request_deserializer=rls_pb2.RateLimitRequest.FromString,
            response_serializer=rls_pb2.RateLimitResponse.SerializeToString,
        )
        service = "envoy.service.ratelimit.v3.RateLimitService"
        handlers = {"ShouldRateLimit": method}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(port, flush=True)
        await server.wait_for_termination()

    asyncio.run(main())


def starlette() -> None:
    """A Starlette endpoint that answers the same question with the same gate and the same JSON."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    from penstock import AsyncGate
    from penstock.wires.http.check_response import verdict_json

    gate: Any = AsyncGate.from_rules(RULES)

    async def check(request: Any) -> Response:
        content = await request.json()
        verdict = await gate.check(*content["descriptors"], domain=content["domain"])
        status = 200 if verdict else 429
        return Response(verdict_json(verdict, time.time()), status, media_type="application/json")

    app = Starlette(routes=[Route("/v1/check", check, methods=["POST"])])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_level="error", access_log=False)
        uvicorn.Server(config).run([listener])


def _free_port() -> int:
    """For grpcio, which takes no socket that listens already."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


SERVERS = {
    "Penstock": lambda: penstock_grpc("nghttp2"),
    "Penstock, another rule in shadow": lambda: penstock_grpc("nghttp2", switched=True),
    "Penstock over grpcio": lambda: penstock_grpc("grpcio"),
    "grpcio, minimal": grpcio_minimal,
    "Starlette": starlette,
}

if __name__ == "__main__":
    SERVERS[sys.argv[1]]()
