"""Connection: one open connection to a server, in RESP by hiredis.

Any number of commands may be under way. Replies come in the order of the commands, so each is
passed to the callback of the first command that has none yet. Nothing here knows about time:
callers decide how long they wait, and close the connection if that was too long.
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


class ConnectionLost(ConnectionError):
    """The connection ended; commands under way may or may not have been executed."""


class Connection(asyncio.Protocol):
    """Commands out, replies in. A reply is a value or an Exception."""

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
            self._end(ConnectionLost("closed by the server"))

    @property
    def is_closing(self) -> bool:
        """Whether it is about to be lost."""
        closing: bool = self._transport.is_closing()
        return closing

    def send(self, data: bytes, callback: Callback) -> None:
        """Send the bytes of one command; ``callback`` gets its reply."""
        if self._lost is not None:
            callback(self._lost)
            return
        self._waiting.append(callback)
        self._transport.write(data)

    async def call(self, *command: Any) -> Any:
        """Send one command and return its reply; an error is raised."""
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
        """Close it now; callers that wait for a reply get `ConnectionLost`."""
        self._end(ConnectionLost("closed"))

    @property
    def has_input(self) -> bool:
        """Whether there is unread input, such as the end of the connection."""
        return bool(self._poll.poll(0))

    def hang_up(self) -> None:
        """Close the connection of an event loop that does not run any more."""
        with contextlib.suppress(OSError):
            self._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    # Called by asyncio -------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        while self._lost is None:
            try:
                reply = reader.gets()
            except hiredis.HiredisError:
                self._end(ConnectionLost("the server's answer is not RESP"))
                return
            if reply is False:
                return
            if not waiting:
                self._end(ConnectionLost("the server answered without being asked"))
                return
            waiting.popleft()(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(ConnectionLost(f"connection lost: {error}" if error else "closed by the server"))

    def _end(self, reason: Exception) -> None:
        if self._lost is not None:
            return
        self._lost = reason
        self._transport.abort()
        while self._waiting:
            self._waiting.popleft()(reason)
        if self.on_lost is not None:
            self.on_lost(reason)
