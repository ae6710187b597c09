"""The same methods served by grpcio, if nghttp2 is not available. Slower, otherwise the same.

Unlike `penstock.wires.grpc.h2`, grpcio accepts compressed messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from penstock.service.grpc_status import RESOURCE_EXHAUSTED, GrpcError
from penstock.wires.grpc.grpcio_bidi import GrpcioBidiStreams
from penstock.wires.grpc.h2.limits import Limits
from penstock.wires.grpc.methods import Methods, Unary, Watch
from penstock.wires.tls import ServerTLS

log = logging.getLogger("penstock.server")

# For calls to be cancelled when the grace period is over.
LAST_WORDS = 0.5
# grpcio cannot close the connections that an earlier authority accepted: so all connections are
# closed at a certain age, and clients have to present their certificates again.
MUTUAL = [("grpc.max_connection_age_ms", 300_000), ("grpc.max_connection_age_grace_ms", 5_000)]
CODES = {code.value[0]: code for code in grpc.StatusCode}
Context = grpc.aio.ServicerContext[bytes, bytes]


class GrpcioServer:
    """Serves ``methods``::

    server = GrpcioServer(methods)
    [port] = await server.start("127.0.0.1:0")
    ...
    await server.drain(5)
    """

    def __init__(self, methods: Methods, limits: Limits | None = None) -> None:
        self.limits = Limits() if limits is None else limits
        self._tally = _Tally()
        self._bidi = GrpcioBidiStreams(self.limits)
        self._handlers = _handlers(methods, self._tally, self.limits.message_bytes)
        for path, method in methods.bidi.items():
            self._handlers[path] = grpc.stream_stream_rpc_method_handler(self._bidi.handler(method))
        # grpcio has one limit for all methods.
        self._message_bytes = self.limits.message_bytes
        if methods.bidi:
            self._message_bytes = max(self._message_bytes, self.limits.bidi_message_bytes)
        self._server: grpc.aio.Server | None = None

    def counts(self) -> dict[str, int]:
        """Counts since the start; grpcio provides no more."""
        return {"messages": self._tally.messages + self._bidi.messages}

    @property
    def open_bidi_streams(self) -> int:
        return len(self._bidi)

    async def start(
        self,
        *addresses: str,
        credentials: grpc.ServerCredentials | None = None,
        mutual: bool = False,
        reuse_port: bool = False,
    ) -> list[int]:
        """Listen on ``"host:port"`` or ``"unix:path"``; returns the ports, which matter for port 0.

        ``mutual``: clients present certificates, and have to present them again periodically.
        """
        options = _options(self.limits, self._message_bytes, reuse_port) + (
            MUTUAL if mutual else []
        )
        server = grpc.aio.server(options=options)
        server.add_generic_rpc_handlers((_Handlers(self._handlers),))
        ports = [
            server.add_insecure_port(address)
            if credentials is None
            else server.add_secure_port(address, credentials)
            for address in addresses
        ]
        await server.start()
        self._server = server
        return ports

    async def drain(self, grace: float = 5.0) -> bool:
        """Answer open calls, accept no more, and close. Whether ``grace`` seconds were enough."""
        server, self._server = self._server, None
        if server is None:
            return True
        cut = self._tally.cut
        self._bidi.leave()
        await server.stop(grace)
        if self._tally.open > 0:  # grpcio cancels the rest, but may not wait for it
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._tally.idle.wait(), LAST_WORDS)
        return self._tally.open == 0 and self._tally.cut == cut


class _Tally:
    """Counts all calls, calls in progress and cancelled calls."""

    def __init__(self) -> None:
        self.messages = 0
        self.open = 0
        self.cut = 0
        self.idle = asyncio.Event()

    def __enter__(self) -> None:
        self.messages += 1
        self.open += 1
        self.idle.clear()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.open -= 1
        if kind is asyncio.CancelledError:
            self.cut += 1
        if self.open == 0:
            self.idle.set()


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]]) -> None:
        self._handlers = handlers

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return self._handlers.get(handler_call_details.method)


def credentials(tls: ServerTLS) -> grpc.ServerCredentials:
    """For `GrpcioServer.start`. The files are read again for every handshake; invalid ones are
    ignored."""

    def read() -> grpc.ServerCertificateConfiguration:
        pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
        roots = None if tls.clients is None else tls.clients.read_bytes()
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        try:
            return read()
        except OSError as error:
            log.warning("certificates could not be reloaded: %s", error)
            return None  # as before

    return grpc.dynamic_ssl_server_credentials(
        read(),
        fetch,  # type: ignore[arg-type]  # None is documented: "as before"
        require_client_authentication=tls.clients is not None,
    )


def _options(limits: Limits, message_bytes: int, reuse_port: bool) -> list[tuple[str, Any]]:
    return [
        ("grpc.so_reuseport", int(reuse_port)),
        ("grpc.max_receive_message_length", message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", limits.streams),
        ("grpc.max_metadata_size", limits.header_bytes),
        ("grpc.absolute_max_metadata_size", limits.header_bytes),
        ("grpc.max_connection_idle_ms", int(limits.idle_seconds * 1000)),
        ("grpc.keepalive_time_ms", int(limits.keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", int(limits.keepalive_timeout * 1000)),
        # Gateways send a PING every second, if they are told to. grpcio would take that for abuse.
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.server_handshake_timeout_ms", int(limits.handshake_seconds * 1000)),
    ]


def _handlers(
    methods: Methods, tally: _Tally, most: int
) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
    # Without serializers grpcio passes raw bytes.
    return {
        **{
            path: grpc.unary_unary_rpc_method_handler(_unary(method, tally, most))
            for path, method in methods.unary.items()
        },
        **{
            path: grpc.stream_stream_rpc_method_handler(_each(method, tally, most))
            for path, method in methods.each.items()
        },
        **{
            path: grpc.unary_stream_rpc_method_handler(_watch(method, tally, most))
            for path, method in methods.watch.items()
        },
    }


def _unary(method: Unary, tally: _Tally, most: int) -> Callable[[bytes, Context], Awaitable[bytes]]:
    async def call(message: bytes, context: Context) -> bytes:
        async with _aborting(context):
            with tally:
                return _checked(await _answer(method, _fitting(message, most)))

    return call


def _each(
    method: Unary, tally: _Tally, most: int
) -> Callable[[AsyncIterator[bytes], Context], AsyncIterator[bytes]]:
    async def call(messages: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        async for message in messages:
            async with _aborting(context):
                with tally:
                    reply = _checked(await _answer(method, _fitting(message, most)))
            yield reply

    return call


def _watch(
    method: Watch, tally: _Tally, most: int
) -> Callable[[bytes, Context], AsyncIterator[bytes]]:
    async def call(message: bytes, context: Context) -> AsyncIterator[bytes]:
        replies: Any = None
        try:
            async with _aborting(context):
                with tally:
                    replies = method(_fitting(message, most))
                    async for reply in replies:
                        yield _checked(reply)
        finally:
            if hasattr(replies, "aclose"):
                await replies.aclose()

    return call


@contextlib.asynccontextmanager
async def _aborting(context: Context) -> AsyncIterator[None]:
    """End the call with the status of an exception."""
    try:
        yield
    except GrpcError as error:
        await context.abort(CODES[error.code], error.message)
    except Exception:
        log.exception("a method failed")
        await context.abort(grpc.StatusCode.INTERNAL, "internal error")


async def _answer(method: Unary, message: bytes) -> bytes:
    reply = method(message)
    return reply if isinstance(reply, bytes) else await reply


def _checked(reply: bytes) -> bytes:
    if type(reply) is not bytes:
        raise TypeError(f"a method must return bytes, not {reply!r:.80}")
    return reply


def _fitting(message: bytes, most: int) -> bytes:
    if len(message) > most:
        raise GrpcError(RESOURCE_EXHAUSTED, "the message is too large")
    return message
