"""Link: one open connection, spoken over in RESP by hiredis.

Any number of commands may be under way; the answers come in the order of the commands,
so each is handed to the callback that was left for it. Nothing here knows about time:
whoever waits decides for how long, and aborts the link when it has lost its patience.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis

Callback = Callable[[Any], None]


class Lost(ConnectionError):
    """The connection ended; what was under way may or may not have been done."""


class Link(asyncio.Protocol):
    """Commands out, answers in. An answer is a value or an Exception."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer  # kept: it closes the transport when it is collected
        self._transport: Any = writer.transport
        self._reader = hiredis.Reader()
        self._waiting: deque[Callback] = deque()
        self._lost: Exception | None = None
        self.on_lost: Callable[[Exception], None] | None = None
        self._poll = select.poll()
        self._poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._transport.set_protocol(self)
        if self._transport.is_closing():
            self._end(Lost("closed by the server"))

    @property
    def is_closing(self) -> bool:
        """Whether it is about to be lost."""
        closing: bool = self._transport.is_closing()
        return closing

    def send(self, data: bytes, callback: Callback) -> None:
        """Bytes of one command, and who gets its answer."""
        if self._lost is not None:
            callback(self._lost)
            return
        self._waiting.append(callback)
        self._transport.write(data)

    async def call(self, *command: Any) -> Any:
        """One command, awaited; an error answer is raised."""
        future = asyncio.get_running_loop().create_future()

        def answered(reply: Any) -> None:
            if future.done():
                return
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply)

        self.send(hiredis.pack_command(command), answered)
        return await future

    def close(self) -> None:
        """End it now. Those who wait for an answer are told that it is lost."""
        self._end(Lost("closed"))

    @property
    def has_news(self) -> bool:
        """Whether something has come that was not read: also that the server has left."""
        return bool(self._poll.poll(0))

    def hang_up(self) -> None:
        """End the connection of a loop that does not run any more."""
        with contextlib.suppress(OSError):
            self._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    # What asyncio calls -------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        while self._lost is None:
            try:
                reply = reader.gets()
            except hiredis.HiredisError:
                self._end(Lost("the server's answer is not RESP"))
                return
            if reply is False:
                return
            if not waiting:
                self._end(Lost("the server answered without being asked"))
                return
            waiting.popleft()(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(Lost(f"connection lost: {error}" if error else "closed by the server"))

    def _end(self, reason: Exception) -> None:
        if self._lost is not None:
            return
        self._lost = reason
        self._transport.abort()
        while self._waiting:
            self._waiting.popleft()(reason)
        if self.on_lost is not None:
            self.on_lost(reason)
