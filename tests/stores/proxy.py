"""A proxy before a Redis that can be as bad as a network, and ports that are worse.

It reads the protocol, both ways, so that a fault hits whole commands and whole answers: "an
error in place of every answer", "the connection breaks in the middle of this one". It runs in a
thread of its own; a change of its mode is in force when the method that asks for it returns.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

# What clients say to get a connection ready. Most faults spare it, since real servers answer it
# too while they load, or are out of memory; and a client would else not get as far as a command.
HANDSHAKE = frozenset({"HELLO", "AUTH", "CLIENT", "SELECT"})
# Answers that are well-formed and that no script of ours gives.
WRONG_SHAPES = (
    b"+OK\r\n", b":7\r\n", b"$-1\r\n", b"$5\r\nhello\r\n", b"*0\r\n", b"*-1\r\n", b"*1\r\n*0\r\n",
    b"*1\r\n*1\r\n$1\r\nx\r\n", b"*2\r\n:1\r\n:2\r\n", b"*1\r\n*9\r\n" + b"$3\r\nabc\r\n" * 9,
)  # fmt: skip
_PATIENCE = 60.0


class Frames:
    """Splits one direction of a connection into commands or answers, RESP2 and RESP3."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._bytes += data
        while (end := self._end(0)) is not None:
            frame = bytes(self._bytes[:end])
            del self._bytes[:end]
            yield frame

    def _end(self, start: int) -> int | None:
        """Where the value that begins here ends; None if it is not all there."""
        line = self._bytes.find(b"\r\n", start)
        if line < 0:
            return None
        kind, end = bytes(self._bytes[start : start + 1]), line + 2
        if kind not in (b"$", b"=", b"!", b"*", b"~", b">", b"%", b"|"):
            return end  # a number, a line, or a command as one types it
        count = int(self._bytes[start + 1 : line])
        if kind in (b"$", b"=", b"!"):
            end += count + 2 if count >= 0 else 0
            return end if end <= len(self._bytes) else None
        values = 2 * count + (kind == b"|") if kind in (b"%", b"|") else count
        for _ in range(values):
            found = self._end(end)
            if found is None:
                return None
            end = found
        return end


def command_name(frame: bytes) -> str:
    words = frame.split(b"\r\n", 3)[2:3] if frame.startswith(b"*") else frame.split()[:1]
    return words[0].decode(errors="replace").upper() if words else ""


@dataclass(frozen=True)
class Mode:
    """What the proxy does now."""

    requests: bool = True  # reach the server
    replies: bool = True  # reach the client
    refuse: bool = False
    delay: float = 0.0
    answer: Callable[[], bytes] | None = None  # instead of the server's
    cut: bool = False
    hold: bool = False
    only: frozenset[str] = frozenset()
    spare: frozenset[str] = HANDSHAKE

    def meets(self, name: str) -> bool:
        return name in self.only if self.only else name not in self.spare


class Proxy:
    """Stands before the server at ``url``; use it as a context manager.

    With ``tls``, clients speak TLS to it, and it speaks plainly to the server.
    """

    def __init__(self, url: str, *, tls: tuple[Path, Path] | None = None) -> None:
        target = urlsplit(url)
        assert target.scheme == "redis", "only a plain TCP connection can be listened to"
        self.target = target.hostname or "127.0.0.1", target.port or 6379
        self.mode = Mode()
        self.port = 0
        self.accepted = 0  # connections, ever
        self.commands: list[str] = []  # names of all that came by
        self.connections: set[_Connection] = set()  # those that are open
        self._url = target
        self._tls = tls
        self._ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    @property
    def url(self) -> str:
        """The server's, with this proxy's address."""
        login, at, _ = self._url.netloc.rpartition("@")
        parts = self._url._replace(netloc=f"{login}{at}127.0.0.1:{self.port}")
        if self._tls:
            parts = parts._replace(scheme="rediss", query=f"ssl_ca_certs={self._tls[0]}")
        return urlunsplit(parts)

    # Modes -------------------------------------------------------------------------

    def let_pass(self) -> None:
        """Everything, as if it were not there."""
        self._set(Mode())

    def drop(self) -> None:
        """A black hole: connections open and stay open, nothing gets through, either way."""
        self._set(Mode(requests=False, replies=False))

    def lose_replies(self, *only: str) -> None:
        """The server does what it is told, and the client never hears of it."""
        self._set(Mode(replies=False, only=frozenset(only)))

    def delay(self, seconds: float) -> None:
        """Each way, so a round trip takes twice as long."""
        self._set(Mode(delay=seconds))

    def hold(self) -> None:
        """Keep every answer, until the next mode."""
        self._set(Mode(hold=True))

    @property
    def held(self) -> int:
        """How many answers are kept now: what they answer has been done."""
        return sum(len(each.held) for each in [*self.connections])

    def refuse(self) -> None:
        """Close all connections, and each new one at once."""
        self._set(Mode(refuse=True))
        self.disconnect()

    def reply(self, raw: bytes, *only: str, spare: frozenset[str] = HANDSHAKE) -> None:
        """Answer this to every command: to those named, or to all but a few."""
        self._set(Mode(answer=lambda: raw, only=frozenset(only), spare=spare))

    def rubbish(self, seed: int = 0, *only: str) -> None:
        """Answer random bytes to every command."""
        chance = random.Random(seed)
        self._set(Mode(answer=lambda: chance.randbytes(64) + b"\r\n", only=frozenset(only)))

    def cut(self, *only: str) -> None:
        """Send half of an answer, then close that connection. A new one fares no better."""
        self._set(Mode(cut=True, only=frozenset(only)))

    def disconnect(self) -> None:
        """Close the connections there are; not a mode."""
        self._call(self._close_all)

    # Its thread --------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result(_PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_PATIENCE)
            assert not self._thread.is_alive()

    def _close_all(self) -> None:
        for link in list(self.connections):
            link.close()

    def _set(self, mode: Mode) -> None:
        def change() -> None:
            self.mode = mode
            for connection in self.connections:
                connection.release()

        self._call(change)

    def _call(self, act: Callable[[], Any]) -> None:
        async def run() -> None:
            act()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(_PATIENCE)

    def _run(self) -> None:
        # Of its own kind, whatever the loop of the test is.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.all_closed = asyncio.Event()
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if self._tls else None
            if context and self._tls:
                context.load_cert_chain(*self._tls)
            listener = await self._loop.create_server(
                lambda: _Connection(self), "127.0.0.1", 0, ssl=context
            )
        except BaseException as error:
            self._ready.set_exception(error)
            raise
        self.port = listener.sockets[0].getsockname()[1]
        self._ready.set_result(None)
        await self._stop.wait()
        listener.close()
        self._close_all()
        while self.connections:
            self.all_closed.clear()
            await self.all_closed.wait()
        await listener.wait_closed()


class _Connection(asyncio.Protocol):
    """A client's; and the one to the server that belongs to it, once there is need of one."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.loop = asyncio.get_running_loop()
        self.client: asyncio.Transport | None = None
        self.server: asyncio.Transport | None = None
        self.connecting: asyncio.Task[Any] | None = None
        self.unsent: list[bytes] = []
        self.requests, self.replies = Frames(), Frames()
        # Commands that wait for an answer: the name, and our own answer if it gets one.
        self.expected: deque[tuple[str, bytes | None]] = deque()
        self.late: deque[Callable[[], None]] = deque()
        self.due = 0.0  # the last of them
        self.held: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.client = transport
        self.proxy.connections.add(self)
        self.proxy.accepted += 1
        if self.proxy.mode.refuse:
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.client = None
        self.close()

    def close(self) -> None:
        for transport in (self.client, self.server):
            if transport:
                transport.abort()
        if self.connecting:
            self.connecting.cancel()
        self.forget()

    def forget(self) -> None:
        if not self.client and not self.server and not self.connecting:
            self.proxy.connections.discard(self)
            self.proxy.all_closed.set()

    # From the client ---------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        for frame in self.requests.feed(data):
            name = command_name(frame)
            self.proxy.commands.append(name)
            mode = self.proxy.mode
            if mode.answer and mode.meets(name):
                self.expected.append((name, mode.answer()))
                self.answer_ourselves()
            elif mode.requests:
                self.expected.append((name, None))
                self.after(mode.delay, self.to_server, frame)

    def to_server(self, frame: bytes) -> None:
        if self.server:
            self.server.write(frame)
            return
        self.unsent.append(frame)
        if self.client and not self.client.is_closing() and not self.connecting:
            self.connecting = self.loop.create_task(self.connect())

    async def connect(self) -> None:
        try:
            await self.loop.create_connection(lambda: _ServerSide(self), *self.proxy.target)
        except OSError:
            if self.client:
                self.client.abort()
        finally:
            self.connecting = None
            self.forget()

    # From the server ---------------------------------------------------------------

    def from_server(self, data: bytes) -> None:
        for frame in self.replies.feed(data):
            mode = self.proxy.mode
            if frame.startswith(b">"):  # not an answer to anything
                if mode.replies:
                    self.after(mode.delay, self.to_client, frame)
                continue
            name = self.expected.popleft()[0] if self.expected else ""
            if mode.cut and mode.meets(name):
                self.to_client(frame[: max(1, len(frame) // 2)])
                self.hang_up()
                return
            if mode.replies or (mode.requests and not mode.meets(name)):
                self.after(mode.delay, self.to_client, frame)
            self.answer_ourselves()

    def answer_ourselves(self) -> None:
        """Where it is our turn: answers keep the order of the commands."""
        while self.expected and (answer := self.expected[0][1]) is not None:
            self.expected.popleft()
            self.to_client(answer)

    def to_client(self, frame: bytes) -> None:
        if self.proxy.mode.hold:
            self.held.append(frame)
        elif self.client and not self.client.is_closing():
            self.client.write(frame)

    def release(self) -> None:
        frames, self.held = self.held, []
        for frame in frames:
            self.to_client(frame)

    def hang_up(self) -> None:
        """As `close`, but what was written gets there."""
        if self.client:
            self.client.close()
        if self.server:
            self.server.abort()

    # Late --------------------------------------------------------------------------

    def after(self, delay: float, act: Callable[[bytes], None], frame: bytes) -> None:
        if not delay and not self.late:
            act(frame)
            return
        # Never before the one before it; timers that are due together fire in any order, so
        # each takes whatever is first.
        self.due = max(self.due, self.loop.time() + delay)
        self.late.append(lambda: act(frame))
        self.loop.call_at(self.due, lambda: self.late.popleft()())


class _ServerSide(asyncio.Protocol):
    def __init__(self, link: _Connection) -> None:
        self.link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.link.server = transport
        if not self.link.client:
            transport.abort()
        transport.writelines(self.link.unsent)
        self.link.unsent.clear()

    def data_received(self, data: bytes) -> None:
        self.link.from_server(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.link.server = None
        self.link.hang_up()
        self.link.forget()


# Ports that do not answer ----------------------------------------------------------


@contextmanager
def unreachable_port() -> Iterator[int]:
    """A port on which a connection is neither accepted nor refused, as behind a firewall.

    Linux drops a SYN for a listener whose queue is full, and the client tries again and again.
    """
    links: list[socket.socket] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        try:
            for _ in range(8):
                link = socket.socket()
                links.append(link)
                link.settimeout(0.1)
                try:
                    link.connect(address)
                except TimeoutError:
                    yield address[1]
                    return
            raise RuntimeError("this system queues more connections than it was asked to")
        finally:
            for link in links:
                link.close()
