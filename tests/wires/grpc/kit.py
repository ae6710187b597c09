"""What the tests of the gRPC wires share: methods that do as they are told, and a bench.

The bench is a connection without a socket and with a clock that stands still; real sockets,
clients and loops are used where they are the point.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from penstock.service.grpc_status import GrpcError
from penstock.testing import FakeClock
from penstock.wires.grpc import h2
from penstock.wires.grpc.h2.limits import Limits
from penstock.wires.grpc.methods import Methods
from wires.grpc.frames import DATA, HEADERS, HELLO, Frame, Reader, frame
from wires.grpc.quota_echo import QuotaEcho

needs_h2 = pytest.mark.skipif(not h2.available(), reason="the nghttp2 extension was not built")

NOW, LATER, FUTURE = "/test.Echo/Now", "/test.Echo/Later", "/test.Echo/Future"
STATUS, LATE_STATUS = "/test.Echo/Status", "/test.Echo/LateStatus"
RAISE, WRONG, LARGE = "/test.Echo/Raise", "/test.Echo/Wrong", "/test.Echo/Large"
WAIT, EACH, WATCH = "/test.Echo/Wait", "/test.Echo/Each", "/test.Echo/Watch"
BIDI = "/test.Echo/Bidi"
MOST = 5_000_000  # bytes of an answer, whatever a fuzzer asks for


class Echo:
    """Methods that do what the message says, and note what becomes of it."""

    def __init__(self) -> None:
        self.calls = 0
        self.notes: list[str] = []
        self.go_on = asyncio.Event()
        self.quota = QuotaEcho()
        self.methods = Methods(
            unary={
                NOW: self.now,
                LATER: self.later,
                FUTURE: self.future,
                LARGE: lambda message: b"x" * min(MOST, int(message)),
                STATUS: self.status,
                LATE_STATUS: self.late_status,
                RAISE: self.broken,
                WRONG: lambda message: "text",  # type: ignore[dict-item,return-value]  # wrong on purpose
                WAIT: self.wait,
            },
            each={EACH: self.each},
            watch={WATCH: self.watch},
            bidi={BIDI: self.quota.open},
        )

    def now(self, message: bytes) -> bytes:
        self.calls += 1
        return message

    async def later(self, message: bytes) -> bytes:
        await asyncio.sleep(0)
        return message

    def future(self, message: bytes) -> Awaitable[bytes]:
        made: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        made.get_loop().call_soon(made.set_result, message)
        return made

    def status(self, message: bytes) -> bytes:
        code, _, text = message.decode().partition(" ")
        raise GrpcError(int(code), text)

    async def late_status(self, message: bytes) -> bytes:
        await asyncio.sleep(0)
        return self.status(message)

    def broken(self, message: bytes) -> bytes:
        raise RuntimeError("a secret")

    async def wait(self, message: bytes) -> bytes:
        self.notes.append("waits")
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.notes.append("cancelled")
            raise
        self.notes.append("done")
        return message

    def each(self, message: bytes) -> bytes | Awaitable[bytes]:
        self.calls += 1
        if message.startswith(b"later"):
            return self.later(message)
        if message.startswith(b"wait"):
            return self.wait(message)
        if message.startswith(b"status "):
            return self.status(message[7:])
        if message.startswith(b"large "):
            return b"x" * min(MOST, int(message[6:]))
        return message

    async def watch(self, message: bytes) -> AsyncIterator[bytes]:
        """``"3 8"``: so many messages of so many bytes; then what else the message says."""
        count, size, *rest = message.decode().split()
        try:
            for number in range(int(count)):
                self.notes.append(f"sends {number}")
                yield b"%d" % number + b"x" * min(MOST, int(size))
            if "wait" in rest:
                await self.go_on.wait()
            if "fail" in rest:
                raise GrpcError(9, "no more")
            if "raise" in rest:
                raise RuntimeError("a secret")
        finally:
            self.notes.append("closed")


class Recorder(asyncio.Transport):
    """A transport that keeps what is written, and is full when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.total = 0
        self.state = "open"
        self.reading = True

    def write(self, data: Any) -> None:
        assert self.state == "open"
        self.written += data
        self.total += len(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        assert self.state == "open"
        self.state = "eof"

    def close(self) -> None:
        self.state = "closed" if self.state != "aborted" else self.state

    def abort(self) -> None:
        self.state = "aborted"

    def is_closing(self) -> bool:
        return self.state in ("closed", "aborted")

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Bench:
    """A server with one connection, without a socket."""

    def __init__(self, limits: Limits | None = None, methods: Methods | None = None) -> None:
        from penstock.wires.grpc.h2.server import H2Server

        self.echo = Echo()
        self.clock = FakeClock()
        self.server = H2Server(methods or self.echo.methods, limits, clock=self.clock)
        self.protocol = self.server.factory()
        self.transport = Recorder()
        self.protocol.connection_made(self.transport)
        self._reader = Reader()

    def say(self, *data: bytes, hello: bool = False) -> list[Frame]:
        if hello:
            self.protocol.data_received(HELLO)
        for each in data:
            self.protocol.data_received(each)
        return self.heard()

    def heard(self) -> list[Frame]:
        """What was written since the last look."""
        data, self.transport.written = self.transport.written, b""
        return self._reader.read(data)

    async def settle(self) -> list[Frame]:
        """Let tasks run until nothing moves."""
        for _ in range(20):
            await asyncio.sleep(0)
        return self.heard()

    def wait(self, seconds: float) -> list[Frame]:
        """Time passes, and the connection looks at itself every second of it."""
        for _ in range(int(seconds)):
            self.clock.advance(1)
            self.protocol.look()
        return self.heard()

    def close(self) -> None:
        self.protocol.connection_lost(None)


class Answer:
    """The frames of one stream, put together."""

    def __init__(self, frames: list[Frame], stream: int = 1) -> None:
        mine = [each for each in frames if each.stream == stream]
        self.frames = [each.kind for each in mine]
        self.fields = [each.fields for each in mine if each.kind == HEADERS]
        self.resets = [each.code for each in mine if each.kind == 3]
        self.body = b"".join(each.payload for each in mine if each.kind == DATA)
        self.ended = any(each.flags & 1 for each in mine if each.kind in (HEADERS, DATA))

    @property
    def http(self) -> str:
        return self.fields[0][":status"]

    @property
    def status(self) -> int:
        assert self.ended, self.frames
        return int(self.fields[-1]["grpc-status"])

    @property
    def text(self) -> str:
        return self.fields[-1].get("grpc-message", "")

    @property
    def messages(self) -> list[bytes]:
        found, rest = [], self.body
        while rest:
            assert rest[0] == 0
            end = 5 + int.from_bytes(rest[1:5])
            found.append(rest[5:end])
            assert end <= len(rest)
            rest = rest[end:]
        return found


def window(stream: int, more: int) -> bytes:
    return frame(8, 0, stream, more.to_bytes(4))
