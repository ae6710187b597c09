"""Load for the tests under load: clients over HTTP and gRPC, until they are stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from envoy.service.ratelimit.v3 import rls_pb2

from running.e2e.running import PATIENCE, Penstock

SHOULD_RATE_LIMIT = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
# A reload takes as long as some hundred to some thousand answers.
MOST_MEANWHILE = 20_000
OK, OVER_LIMIT = rls_pb2.RateLimitResponse.OK, rls_pb2.RateLimitResponse.OVER_LIMIT


def message(domain: str, pairs: Mapping[str, str], hits: int = 0) -> bytes:
    """A RateLimitRequest with one descriptor."""
    request = rls_pb2.RateLimitRequest(domain=domain, hits_addend=hits)
    descriptor = request.descriptors.add()
    for key, value in pairs.items():
        descriptor.entries.add(key=key, value=value)
    return bytes(request.SerializeToString())


def channel(where: str) -> grpc.aio.Channel:
    """With a connection of its own."""
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]
    return grpc.aio.insecure_channel(where, options=options)


def owner(service: Penstock, client_port: int) -> int | None:
    """Which worker's process has the other end of a connection from this port."""
    server_port = int(service.http.rpartition(":")[2])
    pattern = re.compile(
        rf"^\s*\d+: \w+:{server_port:04X} \w+:{client_port:04X} 01 (?:\S+ +){{5}}(\d+)", re.M
    )
    match = pattern.search(Path("/proc/net/tcp").read_text())
    if match is None:
        return None
    for pid in service.workers:
        with contextlib.suppress(FileNotFoundError):
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if os.readlink(fd) == f"socket:[{match[1]}]":
                        return pid
    return None


class HttpConnection:
    """One keep-alive connection. What is lost with it is a ``ConnectionError``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.port: int = writer.get_extra_info("sockname")[1]

    @classmethod
    async def open(cls, where: str) -> HttpConnection:
        host, _, port = where.rpartition(":")
        async with asyncio.timeout(PATIENCE):
            return cls(*await asyncio.open_connection(host, int(port)))

    async def check(self, descriptor: Mapping[str, str]) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        body = json.dumps({"descriptors": [descriptor]}).encode()
        head = f"POST /v1/check HTTP/1.1\r\nhost: test\r\ncontent-length: {len(body)}\r\n\r\n"
        await self.send(head.encode() + body)
        return await self.answer()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> tuple[int, Any]:
        async with asyncio.timeout(PATIENCE):
            try:
                head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"content-length: (\d+)", head, re.I)
                assert length is not None, head
                body = await self._reader.readexactly(int(length[1]))
            except asyncio.IncompleteReadError as error:
                raise ConnectionResetError(f"closed after {error.partial!r:.100}") from None
        text = body.decode()
        return int(head.split()[1]), json.loads(text) if text[:1] in ("{", "[") else text

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Load:
    """Clients that ask about one descriptor, one question at a time each."""

    def __init__(self, service: Penstock, domain: str, descriptor: Mapping[str, str]) -> None:
        self.service = service
        self.domain = domain
        self.descriptor = descriptor
        self.allowed = 0
        self.refused = 0
        self.wrong: Counter[str] = Counter()  # answers that should not be
        self.lost: dict[str, list[str]] = {}  # by client: what became of requests without one
        self.answered: Counter[str] = Counter()  # by client
        self.http: dict[str, HttpConnection] = {}
        self._stopped = asyncio.Event()

    @property
    def total(self) -> int:
        return self.allowed + self.refused

    @contextlib.asynccontextmanager
    async def running(self, http: int, grpcs: int) -> AsyncIterator[None]:
        clients = [self._ask_http(f"http-{at}") for at in range(http)]
        clients += [self._ask_grpc(f"grpc-{at}") for at in range(grpcs)]
        tasks = [asyncio.create_task(client) for client in clients]
        try:
            yield
        finally:
            self._stopped.set()
            await asyncio.gather(*tasks)

    async def until(self, total: int) -> None:
        """Until so many more were answered, however slowly; TimeoutError if answers stop."""
        wanted = self.total + total
        while self.total < wanted:
            before = self.total
            async with asyncio.timeout(PATIENCE):
                while self.total == before:
                    await asyncio.sleep(0.005)

    async def until_logged(self, pattern: str, after: int) -> str:
        """Until the service logs such a line, from line ``after`` on; returns the line.

        The service has `MOST_MEANWHILE` answers' time for it, not a number of seconds: on a busy
        machine, both take longer.
        """
        end = self.total + MOST_MEANWHILE
        while True:
            for line in self.service.lines[after:]:
                if re.search(pattern, line):
                    return line
            assert self.total < end, f"{pattern!r} was not logged:\n{self.service.log}"
            await self.until(10)

    def _count(self, name: str, allowed: bool) -> None:
        self.answered[name] += 1
        if allowed:
            self.allowed += 1
        else:
            self.refused += 1

    async def _ask_http(self, name: str) -> None:
        while not self._stopped.is_set():
            connection = self.http[name] = await HttpConnection.open(self.service.http)
            try:
                while not self._stopped.is_set():
                    status, body = await connection.check(self.descriptor)
                    if status not in (200, 429):
                        self.wrong[f"{name}: {status} {body}"] += 1
                    self._count(name, status == 200)
            except ConnectionError as error:
                self.lost.setdefault(name, []).append(repr(error))
            finally:
                await connection.close()

    async def _ask_grpc(self, name: str) -> None:
        request = message(self.domain, self.descriptor)
        async with channel(self.service.grpc) as link:
            ask = link.unary_unary(
                SHOULD_RATE_LIMIT, response_deserializer=rls_pb2.RateLimitResponse.FromString
            )
            while not self._stopped.is_set():
                try:
                    answer = await ask(request, timeout=PATIENCE, wait_for_ready=True)
                except grpc.aio.AioRpcError as error:
                    if error.code() != grpc.StatusCode.UNAVAILABLE:
                        self.wrong[f"{name}: {error.code()} {error.details()}"] += 1
                    # Not one that never left: on a connection whose end grpcio had not seen.
                    if "Broken pipe" not in str(error.details()):
                        self.lost.setdefault(name, []).append(str(error.details()))
                    continue
                if answer.overall_code not in (OK, OVER_LIMIT):
                    self.wrong[f"{name}: {answer}"] += 1
                self._count(name, answer.overall_code == OK)
