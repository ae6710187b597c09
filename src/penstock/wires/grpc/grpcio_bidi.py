"""Bidirectional streams over grpcio: the same limits as over nghttp2, but no confirmations.

grpcio does not give access to HTTP/2's PING. It reads a message when it is asked for one, and
limits what a peer may send ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from urllib.parse import unquote

import grpc
import grpc.aio

from penstock.clock import MONOTONIC
from penstock.durations import SECOND
from penstock.service.grpc_status import (
    INTERNAL,
    INVALID_ARGUMENT,
    OK,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    GrpcError,
    check_status,
)
from penstock.service.rlqs.interface import QuotaStream
from penstock.wires.grpc.h2.limits import Limits
from penstock.wires.grpc.methods import OpenStream

log = logging.getLogger("penstock.server")

CODES = {code.value[0]: code for code in grpc.StatusCode}
LEAVING = "the server is stopping"
Context = grpc.aio.ServicerContext[bytes, bytes]


class GrpcioBidiStreams:
    """All bidirectional streams of a server."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: set[_Stream] = set()
        self._by_peer: Counter[str] = Counter()
        self._rates: dict[str, _Rate] = {}
        self._numbers = itertools.count(1)
        self._leaving = False
        self.messages = 0

    def __len__(self) -> int:
        return len(self._open)

    def leave(self) -> None:
        """End all streams, so that gateways open others elsewhere; accept no more."""
        self._leaving = True
        for stream in list(self._open):
            stream.close(UNAVAILABLE, LEAVING)

    def handler(
        self, method: OpenStream
    ) -> Callable[[AsyncIterator[bytes], Context], Awaitable[None]]:
        async def call(_: AsyncIterator[bytes], context: Context) -> None:
            # The same for all connections to a Unix socket.
            peer = unquote(context.peer())
            stream = _Stream(self._limits)
            with contextlib.ExitStack() as stack:
                try:
                    rate = stack.enter_context(self._admitted(stream, peer))
                    name = peer if peer.startswith("ip") else f"{peer}{next(self._numbers)}"
                    stream.open(method, metadata_of(context), name)
                    await context.send_initial_metadata(())  # `abort` fails while this waits
                    await stream.run(context, rate)
                except GrpcError as error:
                    stream.close(error.code, error.message)
                except Exception:
                    log.exception("a method failed")
                    stream.close(INTERNAL, "internal error")
                finally:
                    stream.over()
                status, reason = stream.status or (OK, "")
                if status != OK:
                    # It counts until the peer has taken that, too. If that takes too long, grpcio
                    # resets the stream when this returns.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._limits.stall_seconds):
                            await context.abort(CODES[status], reason)

        return call

    @contextlib.contextmanager
    def _admitted(self, stream: _Stream, peer: str) -> Iterator[_Rate]:
        limits = self._limits
        if self._leaving:
            raise GrpcError(UNAVAILABLE, LEAVING)
        if self._by_peer[peer] >= limits.bidi_streams:
            raise GrpcError(RESOURCE_EXHAUSTED, "too many streams are open on this connection")
        if len(self._open) >= limits.bidi_streams_total:
            raise GrpcError(RESOURCE_EXHAUSTED, "too many streams are open on this server")
        self._open.add(stream)
        self._by_peer[peer] += 1
        rate = self._rates.setdefault(peer, _Rate(limits))
        try:
            yield rate
        finally:
            self._open.discard(stream)
            self._by_peer[peer] -= 1
            self.messages += rate.taken
            rate.taken = 0
            if self._by_peer[peer] <= 0:
                del self._by_peer[peer], self._rates[peer]


class _Stream:
    """One stream for its service: a `QuotaWire`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._queue: deque[bytes] = deque()
        self._bytes = 0  # in the queue, and being written
        self._changed = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._receiver: QuotaStream | None = None
        self._loop = asyncio.get_running_loop()
        self.status: tuple[int, str] | None = None  # how it ends

    # Called by the service

    def send(self, message: bytes) -> None:
        if type(message) is not bytes:
            raise TypeError(f"a message must be bytes, not {message!r:.80}")
        if self.status is not None:
            return
        if self._bytes + len(message) > self._limits.bidi_queue_bytes:
            self._give_up("too much waits to be sent on this stream")
            return
        self._queue.append(message)
        self._bytes += len(message)
        self._changed.set()

    def close(self, status: int = OK, reason: str = "") -> None:
        check_status(status)
        if self.status is None:
            self.status = (status, reason)
            self._changed.set()
            self._loop.call_soon(self.over)

    def confirm(self, delivered: Callable[[], None]) -> bool:
        return False

    def _give_up(self, reason: str) -> None:
        self.close(RESOURCE_EXHAUSTED, reason)
        self._queue.clear()
        if self._writing is not None:
            self._writing.cancel()

    # Called by the wire

    def open(self, method: OpenStream, metadata: Mapping[str, str], peer: str) -> None:
        self._receiver = method(self, metadata, peer)

    async def run(self, context: Context, rate: _Rate) -> None:
        """Until the stream ends."""
        reading = self._loop.create_task(self._read(context, rate))
        self._writing = self._loop.create_task(self._write(context))
        try:
            await asyncio.wait({self._writing})
        finally:
            reading.cancel()
            self._writing.cancel()
            await asyncio.gather(reading, self._writing, return_exceptions=True)

    async def _read(self, context: Context, rate: _Rate) -> None:
        try:
            while self.status is None:
                message = await context.read()
                if not isinstance(message, bytes):
                    self.close()  # the peer has no more to say
                    return
                if len(message) > self._limits.bidi_message_bytes:
                    raise GrpcError(RESOURCE_EXHAUSTED, "the message is too large")
                await rate.wait()
                if self._receiver is not None and self.status is None:
                    self._receiver.receive(message)
                del message  # which may be large, and the next one may take its time
        except GrpcError as error:
            self.close(error.code, error.message)
        except ValueError as error:
            self.close(INVALID_ARGUMENT, str(error))
        except Exception:
            log.exception("a method failed")
            self.close(INTERNAL, "internal error")

    async def _write(self, context: Context) -> None:
        while True:
            while self._queue:
                message = self._queue.popleft()
                late = self._loop.call_later(
                    self._limits.stall_seconds, self._give_up, "messages are not read"
                )
                try:
                    await context.write(message)
                finally:
                    late.cancel()
                self._bytes -= len(message)
            if self.status is not None:
                return
            self._changed.clear()
            await self._changed.wait()

    def over(self) -> None:
        """Tell the service, once."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            try:
                receiver.closed()
            except Exception:
                log.exception("a closed stream failed")


class _Rate:
    """Messages of a peer: a token bucket in one number, the time at which it is full again."""

    def __init__(self, limits: Limits) -> None:
        self.taken = 0
        self._cost = SECOND // limits.bidi_messages_per_second
        self._depth = self._cost * limits.bidi_messages_burst
        self._full_at = 0

    async def wait(self) -> None:
        """Take one, when there is one."""
        now = MONOTONIC.now()
        self.taken += 1
        self._full_at = max(self._full_at, now) + self._cost
        late = self._full_at - now - self._depth
        if late > 0:
            await asyncio.sleep(late / SECOND)


def metadata_of(context: Context) -> Mapping[str, str]:
    """Text only: binary fields are left out."""
    metadata: dict[str, str] = {}
    for key, value in context.invocation_metadata() or ():
        if isinstance(value, str) and not key.startswith("grpc-"):
            metadata[key] = f"{metadata[key]},{value}" if key in metadata else value
    return metadata
