"""Questions and answers between the supervisor and a worker: lines of JSON over a socket.

Either side may ask. An answer carries its question's number, so many may be under way.
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

Message = dict[str, Any]
Answering = Callable[[Message], Awaitable[Message]]

logger = logging.getLogger("penstock.server")

# A snapshot of metrics has some hundred kB; rules dumped may have more.
LONGEST_LINE = 64 * 1024 * 1024


class Channel:
    """One end. ``answering`` is asked what comes; never raises into the channel."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Message]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writer: asyncio.StreamWriter | None = None
        self.closed = asyncio.Event()

    async def open(self, end: socket.socket) -> None:
        reader, self._writer = await asyncio.open_unix_connection(sock=end, limit=LONGEST_LINE)
        self._keep(asyncio.create_task(self._read(reader)))

    async def ask(self, question: Message, timeout: float = 10.0) -> Message:
        """TimeoutError if it takes longer, ConnectionError if the other side is gone."""
        if self._writer is None or self.closed.is_set():
            raise ConnectionError("the other process is gone")
        number = next(self._numbers)
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"ask": number, "message": question})
            return await asyncio.wait_for(future, timeout)
        finally:
            self._asked.pop(number, None)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                told = json.loads(line)
                if "ask" in told:
                    self._keep(asyncio.create_task(self._answer(told["ask"], told["message"])))
                else:
                    future = self._asked.get(told["answer"])
                    if future is not None and not future.done():
                        future.set_result(told["message"])
        except (ConnectionError, ValueError) as error:
            logger.debug("a channel broke: %s", error)
        finally:
            self.closed.set()
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(ConnectionError("the other process is gone"))

    async def _answer(self, number: int, message: Message) -> None:
        try:
            found = await self._answering(message)
        except Exception as error:
            logger.exception("a command failed: %.200r", message.get("do"))
            found = {"ok": False, "status": 500, "error": f"{type(error).__name__}: {error}"}
        with contextlib.suppress(ConnectionError):
            await self._send({"answer": number, "message": found})

    async def _send(self, told: Message) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps(told).encode() + b"\n")
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
