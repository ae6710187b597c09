"""Real servers and a real client, for tests that are the same for every stack.

A handler is a *script*: steps that are done one after the other, in threads or in a task::

    [("set_trailing_metadata", [("mine", "1")]), ("reply", "hello"), ("abort", code, "no")]

Steps are methods of the servicer context, and besides them ``reply``, ``raise``, ``read``
(all requests), ``pause`` (until the test says so) and ``note``.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

import grpc
import grpc.aio

from penstock import Limiter, MemoryStore
from penstock.integrations.grpc import RateLimitInterceptor as InThreads
from penstock.integrations.grpc.aio import RateLimitInterceptor as InTasks
from penstock.testing import FakeClock

SYNC, AIO, AIO_THREADS, AIO_WRITER = "sync", "aio", "aio-threads", "aio-writer"
STACKS = (SYNC, AIO, AIO_THREADS, AIO_WRITER)
KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
SERVICE = "test.Echo"
LONG = 10.0  # seconds that nothing takes, unless it hangs

Step = tuple[Any, ...]


@dataclass
class Script:
    """What the handlers do, and what became of it."""

    steps: list[Step] = field(default_factory=lambda: [("reply", "hello")])
    runs: int = 0
    notes: list[Any] = field(default_factory=list)
    paused: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)

    def perform(self, requests: Any, context: Any) -> Iterator[str]:
        """In a thread."""
        self.runs += 1
        self.left.clear()
        try:
            for name, *args in self.steps:
                if name == "reply":
                    yield args[0]
                elif name == "raise":
                    raise args[0]
                elif name == "read":
                    self.notes.append([request.decode() for request in requests])
                elif name == "pause":
                    self.paused.set()
                    assert self.go_on.wait(LONG)
                elif name == "note":
                    self.notes.append(args[0](context))
                else:
                    getattr(context, name)(*args)
        finally:
            self.left.set()

    async def perform_async(self, requests: Any, context: Any) -> AsyncIterator[str]:
        """In a task."""
        self.runs += 1
        self.left.clear()
        try:
            for name, *args in self.steps:
                if name == "reply":
                    yield args[0]
                elif name == "raise":
                    raise args[0]
                elif name == "read":
                    self.notes.append([request.decode() async for request in requests])
                elif name == "pause":
                    self.paused.set()
                    while not self.go_on.is_set():
                        await asyncio.sleep(0.002)
                elif name == "note":
                    self.notes.append(args[0](context))
                else:
                    done = getattr(context, name)(*args)
                    if isawaitable(done):
                        await done
        finally:
            self.left.set()


def handlers_of(script: Script, stack: str) -> dict[str, Any]:
    """One method of each kind, named as the kind."""

    def unary(request: bytes, context: Any) -> bytes | None:
        replies = [reply.encode() for reply in script.perform(request, context)]
        return replies[-1] if replies else b""

    def stream(request: bytes, context: Any) -> Iterator[bytes]:
        for reply in script.perform(request, context):
            yield reply.encode()

    async def unary_async(request: bytes, context: Any) -> bytes:
        replies = [reply.encode() async for reply in script.perform_async(request, context)]
        return replies[-1] if replies else b""

    async def stream_async(request: bytes, context: Any) -> AsyncIterator[bytes]:
        async with contextlib.aclosing(script.perform_async(request, context)) as replies:
            async for reply in replies:
                yield reply.encode()

    async def write_async(request: bytes, context: Any) -> None:
        async with contextlib.aclosing(script.perform_async(request, context)) as replies:
            async for reply in replies:
                await context.write(reply.encode())

    one, many = {
        SYNC: (unary, stream),
        AIO_THREADS: (unary, stream),
        AIO: (unary_async, stream_async),
        AIO_WRITER: (unary_async, write_async),
    }[stack]
    return {
        kind: getattr(grpc, f"{kind}_rpc_method_handler")(many if kind.endswith("stream") else one)
        for kind in KINDS
    }


@dataclass(frozen=True)
class Answer:
    """What a client got."""

    code: grpc.StatusCode
    details: str
    replies: list[str]
    trailing: dict[str, Any]
    pairs: list[tuple[str, Any]]
    raw: Any

    @property
    def passed(self) -> bool:
        return self.code is grpc.StatusCode.OK


class Client:
    """Calls any kind of method in one way."""

    def __init__(self, target: str, *options: tuple[str, Any]) -> None:
        # One connection a client: channels of one target would share theirs.
        own = ("grpc.use_local_subchannel_pool", 1)
        self._channel = grpc.insecure_channel(target, options=[own, *options])

    def start(
        self,
        kind: str = "unary_unary",
        requests: tuple[str, ...] = ("hi",),
        metadata: Any = None,
        service: str = SERVICE,
        timeout: float = LONG,
        method: str | None = None,
    ) -> Any:
        """The call under way: a future and an iterator of responses in one."""
        make = getattr(self._channel, kind)(f"/{service}/{method or kind}")
        sent: Any = iter([text.encode() for text in requests])
        if kind.startswith("unary"):
            sent = next(sent)
        if kind.endswith("stream"):
            return make(sent, metadata=metadata, timeout=timeout)
        return make.future(sent, metadata=metadata, timeout=timeout)

    def call(self, kind: str = "unary_unary", *args: Any, **more: Any) -> Answer:
        return finish(kind, self.start(kind, *args, **more))

    def close(self) -> None:
        self._channel.close()


def finish(kind: str, call: Any) -> Answer:
    """Wait for the end of a call."""
    replies: list[str] = []
    with contextlib.suppress(grpc.RpcError, grpc.FutureCancelledError):
        if kind.endswith("stream"):
            replies.extend(reply.decode() for reply in call)
        else:
            replies.append(call.result().decode())
    pairs = [(name, value) for name, value in call.trailing_metadata() or ()]
    return Answer(call.code(), call.details(), replies, dict(pairs), pairs, call)


class Loop:
    """An event loop in a thread, for all servers of grpc.aio: it minds several loops."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(2 * LONG)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Bench:
    """Makes servers and clients of one stack for one test, and clears them away."""

    def __init__(self, stack: str, loop: Loop) -> None:
        self.stack = stack
        self.asynchronous = stack != SYNC
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.script = Script()
        self._loop = loop
        self._undo = contextlib.ExitStack()

    def limiter(self, limit: Any = None) -> Limiter:
        return Limiter(limit, store=self.store)

    def interceptor(self, *args: Any, **options: Any) -> Any:
        return (InTasks if self.asynchronous else InThreads)(*args, **options)

    def serve(
        self,
        *interceptors: Any,
        service: str = SERVICE,
        address: str = "127.0.0.1:0",
        handlers: dict[str, Any] | None = None,
    ) -> str:
        """Start a server; returns its target."""
        made = handlers or handlers_of(self.script, self.stack)
        generic = grpc.method_handlers_generic_handler(service, made)
        if not self.asynchronous:
            pool = ThreadPoolExecutor(8)
            server = grpc.server(pool, handlers=[generic], interceptors=interceptors)
            port = server.add_insecure_port(address)
            server.start()
            self._undo.callback(pool.shutdown)
            self._undo.callback(lambda: server.stop(None).wait(LONG))
        else:
            port = self._loop.run(self._serve_async(generic, interceptors, address))
        return f"{address.removesuffix('0')}{port}" if address.endswith(":0") else address

    async def _serve_async(self, generic: Any, interceptors: Any, address: str) -> int:
        pool = ThreadPoolExecutor(8)
        server = grpc.aio.server(pool, handlers=[generic], interceptors=interceptors)
        port = server.add_insecure_port(address)
        await server.start()
        self._undo.callback(pool.shutdown)
        self._undo.callback(lambda: self._loop.run(server.stop(None)))
        return port

    def connect(self, target: str, *options: tuple[str, Any]) -> Client:
        client = Client(target, *options)
        self._undo.callback(client.close)
        return client

    def limited(self, *args: Any, **options: Any) -> Client:
        """A client of a server with an interceptor of these options."""
        return self.connect(self.serve(self.interceptor(*args, **options)))

    def function(self, plain: Callable[[Any], Any]) -> Any:
        """A coroutine function of the same, where that can be awaited."""
        if not self.asynchronous:
            return plain

        async def awaited(given: Any) -> Any:
            await asyncio.sleep(0)
            return plain(given)

        return awaited

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run(work)

    def close(self) -> None:
        self.script.go_on.set()
        self._undo.close()


def eventually(look: Callable[[], Any]) -> None:
    """Wait for what another thread is about to do."""
    done = threading.Event()
    for _ in range(int(LONG / 0.005)):
        if look():
            return
        done.wait(0.005)
    raise AssertionError("it never came to that")
