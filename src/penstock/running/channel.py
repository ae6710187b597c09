"""Channel: requests and answers between the supervisor and a worker, as lines of JSON.

Either side may send requests. An answer has the number of its request, so several requests may be
open at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.admin.commands import failed

Message = dict[str, Any]
Handler = Callable[[Message], Awaitable[Message]]

logger = logging.getLogger("penstock.server")

# A snapshot of metrics takes some hundred kB; a dump of the rules may take more.
LONGEST_LINE = 64 * 1024 * 1024


class Channel:
    """One end. ``handler`` answers incoming requests; if it raises, the answer is an error."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Message]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writer: asyncio.StreamWriter | None = None
        self.closed = asyncio.Event()

    async def open(self, end: socket.socket) -> None:
        reader, self._writer = await asyncio.open_unix_connection(sock=end, limit=LONGEST_LINE)
        self._keep(asyncio.create_task(self._read(reader)))

    async def ask(self, request: Message, timeout: float = 10.0) -> Message:
        """TimeoutError if it takes longer, ConnectionError if the other side is gone."""
        if self._writer is None or self.closed.is_set():
            raise ConnectionError("the other process is gone")
        number = next(self._numbers)
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"ask": number, "message": request})
            return await asyncio.wait_for(future, timeout)
        finally:
            self._pending.pop(number, None)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                frame = json.loads(line)
                if "ask" in frame:
                    self._keep(asyncio.create_task(self._answer(frame["ask"], frame["message"])))
                else:
                    future = self._pending.get(frame["answer"])
                    if future is not None and not future.done():
                        future.set_result(frame["message"])
        except (ConnectionError, ValueError) as error:
            logger.debug("the channel to the other process broke: %s", error)
        finally:
            self.closed.set()
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(ConnectionError("the other process is gone"))

    async def _answer(self, number: int, message: Message) -> None:
        try:
            answer = await self._handler(message)
        except Exception as error:
            logger.exception("a command failed: %.200r", message.get("do"))
            answer = failed(500, f"{type(error).__name__}: {error}")
        with contextlib.suppress(ConnectionError):
            await self._send({"answer": number, "message": answer})

    async def _send(self, frame: Message) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps(frame).encode() + b"\n")
        await self._writer.drain()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
