"""The table of what Envoy's service answers, over every wire, asked by real clients."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest

from penstock.integrations.deciding.identity import Trust
from penstock.running.worker import SHOULD_RATE_LIMIT
from penstock.service.health import Health
from penstock.service.service import Reply, Service
from penstock.wires.grpc import h2
from penstock.wires.grpc.grpcio import GrpcioServer
from penstock.wires.grpc.methods import Methods
from penstock.wires.http.api import http_api
from penstock.wires.http.messages import HttpRequest
from penstock.wires.http.protocol import HttpServer
from service.rls_cases import CASES, Case, Message, make_gate, run
from service.rls_messages import decode, decode_json, encode

WIRES = ("nghttp2", "grpcio", "json")


class Site:
    """Three wires in one event loop, of whichever service the case at hand has."""

    def __init__(self) -> None:
        self.service: Service | None = None
        self.ports: dict[str, int] = {}
        self._ready, self._ending = threading.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def rate_limit(self, message: bytes) -> Reply:
        assert self.service is not None
        return self.service.rate_limit(message)

    def http(self, request: HttpRequest) -> Any:
        assert self.service is not None
        return http_api(self.service, Health(), Trust(), refunds=True)(request)

    async def _main(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        methods = Methods(unary={SHOULD_RATE_LIMIT: self.rate_limit})
        grpcio = GrpcioServer(methods)
        [self.ports["grpcio"]] = await grpcio.start("127.0.0.1:0")
        http = HttpServer(self.http)
        listeners = [await loop.create_server(http.factory, "127.0.0.1", 0)]
        self.ports["json"] = listeners[0].sockets[0].getsockname()[1]
        servers: list[Any] = [grpcio, http]
        if h2.available():
            from penstock.wires.grpc.h2.server import H2Server

            own = H2Server(methods)
            listeners.append(await loop.create_server(own.factory, "127.0.0.1", 0))
            self.ports["nghttp2"] = listeners[1].sockets[0].getsockname()[1]
            servers.append(own)
        self._ready.set()
        await self._ending.wait()
        for listener in listeners:
            listener.close()
        await asyncio.gather(*[server.drain(1.0) for server in servers])

    def __enter__(self) -> Site:
        self._thread.start()
        self._ready.wait(60)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(60)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture(scope="module")
def channels(site: Site) -> Iterator[dict[str, Any]]:
    clients: dict[str, Any] = {
        wire: grpc.insecure_channel(f"127.0.0.1:{port}")
        for wire, port in site.ports.items()
        if wire != "json"
    }
    clients["json"] = httpx.Client(base_url=f"http://127.0.0.1:{site.ports['json']}")
    yield clients
    for client in clients.values():
        client.close()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_wire_answers_alike(
    case: Case, wire: str, site: Site, channels: dict[str, Any]
) -> None:
    if wire not in channels:
        pytest.skip("nghttp2 was not there when Penstock was built")
    gate, clock = make_gate(case)
    site.service = Service(gate, clock=clock, headers=case.headers)

    def ask_grpc(request: Message) -> Message | int:
        call = channels[wire].unary_unary(SHOULD_RATE_LIMIT)
        try:
            return decode(call(encode(request), timeout=10))
        except grpc.RpcError as error:
            code: int = error.code().value[0]  # type: ignore[attr-defined]  # a Call, too
            return code

    def ask_json(request: Message) -> Message | int:
        answer = channels[wire].post("/json", content=json.dumps(request))
        if answer.status_code in (200, 429):
            response = decode_json(answer.content)
            assert (answer.status_code == 429) == (response["overall_code"] == "OVER_LIMIT")
            return response
        assert answer.status_code == 400
        return _error_of(case, request)

    run(case, clock, ask_json if wire == "json" else ask_grpc)


def _error_of(case: Case, request: Message) -> int:
    """JSON has one status for all errors: that there is one is what is asked here."""
    expected = next(step.expected for step in case.steps if step.request is request)
    assert isinstance(expected, int), "it is no error over gRPC"
    return expected
