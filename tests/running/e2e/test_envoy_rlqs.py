"""A real Envoy with the files of deploy/envoy gets its quotas over both wires."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.wires.grpc import h2
from running.e2e.gateways import DEPLOY, envoy_binary
from running.e2e.quota_service import Assigning, QuotaServer, quota_server
from running.e2e.running import (
    PATIENCE,
    Answer,
    Running,
    ask,
    new_folder,
    reserved_port,
    statuses,
    wait_for_port,
)
from stores.redis_server import wait_until

WIRES = [
    pytest.param("nghttp2", marks=pytest.mark.skipif(not h2.available(), reason="not built")),
    "grpcio",
]
NOBODY = (("api_key", "none"),)


@dataclass
class Place:
    """An Envoy, and the port at which it looks for its quotas."""

    edge: str
    grpc: int
    envoy: Running

    def ask(self, key: str) -> Answer:
        return ask(self.edge, x_api_key=key)

    def statuses(self, count: int, key: str) -> list[int]:
        return statuses(self.edge, count, x_api_key=key)


def start_envoy(
    stack: ExitStack, file: str, app: int, grpc: int, keepalive: str = "5s", node: str = "edge-1"
) -> Place:
    edge = stack.enter_context(reserved_port())
    text = (DEPLOY / "envoy" / file).read_text()
    changes = {
        "address: 0.0.0.0, port_value: 8000": f"address: 127.0.0.1, port_value: {edge}",
        "port_value: 8081": f"port_value: {grpc}",
        "port_value: 8001": f"port_value: {app}",
        "value: edge-1": f"value: {node}",
        "connect_timeout: 0.25s": "connect_timeout: 5s",  # the machine of a test may be busy
        "interval: 5s, timeout: 5s": f"interval: {keepalive}, timeout: 30s",
    }
    for old, new in changes.items():
        assert text.count(old) == 1, f"deploy/envoy/{file} has no {old!r} any more"
        text = text.replace(old, new)
    config: dict[str, Any] = yaml.safe_load(text)
    path: Path = new_folder() / "envoy.yaml"
    path.write_text(yaml.safe_dump(config))
    running = Running(
        [envoy_binary(), "-c", str(path), "--concurrency", "2", "--disable-hot-restart",
         "-l", "warning", "--log-format", "%l %v"]
    )  # fmt: skip
    stack.callback(running.end)
    wait_for_port(running, edge)
    return Place(f"127.0.0.1:{edge}", grpc, running)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def grpc(stack: ExitStack) -> int:
    return stack.enter_context(reserved_port())


def wait_for_reports(service: Assigning, count: int = 1) -> None:
    wait_until(
        lambda: sum(len(each.reports) for each in service.streams) >= count, "a report", PATIENCE
    )


@pytest.mark.parametrize("wire", WIRES)
def test_reports_arrive_and_assignments_take_effect(
    stack: ExitStack, app: int, grpc: int, wire: str
) -> None:
    service = Assigning(tokens=5)
    server = stack.enter_context(quota_server(wire, grpc, service))
    place = start_envoy(stack, "rlqs.yaml", app, grpc, keepalive="0.1s")
    # No share yet: refused, and reported at once.
    first = place.ask("trial")
    assert (first.status, first.headers["retry-after"]) == (429, "1")
    wait_for_reports(service)
    stream = service.stream
    trial = (("api_key", "trial"),)
    assert stream.reports[0] == {trial: (0, 1)}
    assert stream.metadata["x-node-id"] == "edge-1"
    assert stream.peer.startswith("ipv4:127.0.0.1:")
    wait_until(lambda: place.ask("trial").status == 200, "the share", PATIENCE)
    assert place.statuses(6, "trial") == [200] * 4 + [429] * 2
    # Pushed without a report.
    server.call(partial(stream.assign, 0, trial))
    server.call(partial(stream.assign, 3, trial))
    wait_until(lambda: place.ask("trial").status == 200, "the new share", PATIENCE)
    assert place.statuses(3, "trial") == [200, 200, 429]
    # Requests without a key have a bucket, too.
    assert ask(place.edge).status == 429
    wait_until(lambda: NOBODY in stream.reports[-1], "its report", PATIENCE)
    wait_until(lambda: ask(place.edge).status == 200, "its share", PATIENCE)
    if wire == "nghttp2":
        wait_until(lambda: stream.delivered == 4, "all confirmations", PATIENCE)
    # Every five seconds, all buckets; and a keep-alive of 0.1 s has not cut the stream.
    wait_until(lambda: len(stream.reports[-1]) == 2, "a report of all", PATIENCE)
    assert [each.over for each in service.streams] == [0]
    assert place.envoy.process.poll() is None, place.envoy.log


@pytest.mark.parametrize("wire", WIRES)
def test_a_server_that_is_restarted(stack: ExitStack, app: int, grpc: int, wire: str) -> None:
    """Streams end at once; Envoy goes on with its share, and comes back at its next report."""
    before, after = Assigning(tokens=100), Assigning()
    with quota_server(wire, grpc, before) as server:
        place = start_envoy(stack, "rlqs.yaml", app, grpc)
        wait_until(lambda: place.ask("a").status == 200, "the share", PATIENCE)
        assert server.drain() < 8, "it waited for the stream"
        assert [each.over for each in before.streams] == [1]
    assert place.statuses(20, "a") == [200] * 20
    with quota_server(wire, grpc, after):
        wait_for_reports(after)
        [[bucket]] = [list(report) for report in after.streams[0].reports[:1]]
        assert bucket == (("api_key", "a"),)
        assert place.statuses(20, "a") == [200] * 20


@pytest.mark.parametrize(("file", "status"), [("rlqs.yaml", 429), ("rlqs-soft.yaml", 200)])
def test_without_penstock(stack: ExitStack, app: int, grpc: int, file: str, status: int) -> None:
    place = start_envoy(stack, file, app, grpc)
    assert place.statuses(20, "a") == [status] * 20
    assert ask(place.edge).status == status
    assert place.envoy.process.poll() is None, place.envoy.log


@pytest.mark.parametrize("wire", WIRES)
def test_shares_that_expire(stack: ExitStack, app: int, grpc: int, wire: str) -> None:
    """Soft limits: a share is kept to, and an expired one is not."""
    service = Assigning(tokens=None)
    server: QuotaServer = stack.enter_context(quota_server(wire, grpc, service))
    place = start_envoy(stack, "rlqs-soft.yaml", app, grpc)
    assert place.statuses(20, "a") == [200] * 20
    wait_for_reports(service)
    server.call(partial(service.stream.assign, 0, (("api_key", "a"),), ttl=2))
    wait_until(lambda: place.ask("a").status == 429, "the share", PATIENCE)
    wait_until(lambda: place.ask("a").status == 200, "its end", PATIENCE)
