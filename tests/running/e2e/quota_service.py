"""A quota service for real Envoys: notes their reports, and assigns what a test says."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar, cast

import pytest

from penstock.rules.model import RuleSet
from penstock.running.listeners import Sockets
from penstock.running.settings import Settings, address_of
from penstock.running.sockets import listen
from penstock.running.worker import Worker
from penstock.service.rlqs.interface import QuotaWire

rlqs = pytest.importorskip("envoy.service.rate_limit_quota.v3.rlqs_pb2")
strategies = pytest.importorskip("envoy.type.v3.ratelimit_strategy_pb2")

Bucket = tuple[tuple[str, str], ...]  # sorted pairs
T = TypeVar("T")


class Assigning:
    """A `QuotaService`. ``tokens`` are assigned to each new bucket; None assigns nothing."""

    def __init__(self, tokens: int | None = None) -> None:
        self.tokens = tokens
        self.streams: list[AssigningStream] = []

    def start(self) -> None:
        """Called by a worker."""

    async def close(self) -> None:
        """The same."""

    def open(self, wire: QuotaWire, metadata: Mapping[str, str], peer: str) -> AssigningStream:
        stream = AssigningStream(self, wire, metadata, peer)
        self.streams.append(stream)
        return stream

    @property
    def stream(self) -> AssigningStream:
        """The one that is open."""
        (stream,) = [each for each in self.streams if not each.over]
        return stream


class AssigningStream:
    def __init__(
        self, service: Assigning, wire: QuotaWire, metadata: Mapping[str, str], peer: str
    ) -> None:
        self._service = service
        self.wire = wire
        self.metadata = metadata
        self.peer = peer
        self.over = 0
        self.reports: list[dict[Bucket, tuple[int, int]]] = []  # allowed and refused
        self.sizes: list[int] = []
        self.delivered = 0
        self._known: set[Bucket] = set()

    def receive(self, message: bytes) -> None:
        usages = rlqs.RateLimitQuotaUsageReports.FromString(message).bucket_quota_usages
        self.sizes.append(len(message))
        self.reports.append(
            {
                tuple(sorted(each.bucket_id.bucket.items())): (
                    each.num_requests_allowed,
                    each.num_requests_denied,
                )
                for each in usages
            }
        )
        new = self.reports[-1].keys() - self._known
        self._known |= new
        if self._service.tokens is not None:
            self.assign(self._service.tokens, *new)

    def closed(self) -> None:
        self.over += 1

    def assign(self, tokens: int, *buckets: Bucket, ttl: int = 60) -> None:
        """So many tokens, which are not filled up in the time of a test."""
        response = rlqs.RateLimitQuotaResponse()
        for bucket in buckets:
            action = response.bucket_action.add()
            action.bucket_id.bucket.update(dict(bucket))
            assigned = action.quota_assignment_action
            assigned.assignment_time_to_live.seconds = ttl
            if tokens == 0:
                deny = strategies.RateLimitStrategy.DENY_ALL
                assigned.rate_limit_strategy.blanket_rule = deny
                continue
            limit = assigned.rate_limit_strategy.token_bucket
            limit.max_tokens = tokens
            limit.tokens_per_fill.value = 1
            limit.fill_interval.seconds = 100_000
        if buckets:
            self.wire.send(response.SerializeToString())
            self.wire.confirm(self._count)

    def _count(self) -> None:
        self.delivered += 1


class QuotaServer:
    """A worker of ``penstock serve`` with this service, in a loop of its own."""

    def __init__(self, wire: str, port: int, service: Assigning) -> None:
        self._settings = Settings(http="off", grpc=f"127.0.0.1:{port}", wire=wire)
        self._service = service
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._worker: Worker = self.do(self._start())

    async def _start(self) -> Worker:
        worker: Any = Worker(self._settings, "memory", "0", None, RuleSet({}))
        worker.quota_service = self._service
        address = address_of(self._settings.grpc, "grpc")
        assert address is not None
        sockets = listen(address, 1) if worker.wire == "nghttp2" else [None]
        await worker.start(Sockets(None, sockets[0]))
        return cast(Worker, worker)

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def call(self, function: Callable[[], object]) -> None:
        """In the loop, as the service itself would do it."""

        async def run() -> None:
            function()

        self.do(run())

    def drain(self) -> float:
        """How many seconds it took."""
        start = time.monotonic()
        self.do(self._worker.drain(10))
        return time.monotonic() - start

    def close(self) -> None:
        self.do(self._worker.drain(0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


@contextlib.contextmanager
def quota_server(wire: str, port: int, service: Assigning) -> Iterator[QuotaServer]:
    server = QuotaServer(wire, port, service)
    try:
        yield server
    finally:
        server.close()
