"""The asynchronous calls of one connection: awaited, timed, and cancelled with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from penstock.durations import SECOND
from penstock.service.grpc_status import CANCELLED, DEADLINE_EXCEEDED, OK, UNAVAILABLE
from penstock.wires.grpc.h2._nghttp2 import Session
from penstock.wires.grpc.h2.bidi import BidiStreams

WATCH = 2  # as in _stream.h
LONGEST_TIMER = 24 * 3600 * SECOND  # a longer deadline counts as none


class Calls:
    """Calls by stream. A closed stream is forgotten here first, so no call is answered twice.

    ``changed`` is called when a response is ready to be sent.
    """

    def __init__(self, changed: Callable[[], None], bidi: BidiStreams) -> None:
        self._changed = changed
        self.bidi = bidi
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, tuple[asyncio.Future[Any], asyncio.TimerHandle | None]] = {}
        self._room: dict[int, asyncio.Future[None]] = {}
        self.session: Session | None = None  # comes soon after, goes with the connection

    def __len__(self) -> int:
        return len(self._open)

    def begin(
        self, stream: int, kind: int, result: Awaitable[bytes] | AsyncIterator[bytes], timeout: int
    ) -> None:
        """Called by the session when a method returned something other than bytes."""
        if kind == WATCH:
            if not isinstance(result, AsyncIterator):
                raise TypeError(f"a watch must return an async iterator, not {result!r:.80}")
            future: asyncio.Future[Any] = self._loop.create_task(self._watch(stream, result))
        elif isinstance(result, Awaitable):
            future = asyncio.ensure_future(result)
        else:
            raise TypeError(f"a method must return bytes, not {result!r:.80}")
        timer = None
        if 0 <= timeout < LONGEST_TIMER:
            timer = self._loop.call_later(timeout / SECOND, self._late, stream)
        self._open[stream] = (future, timer)
        future.add_done_callback(lambda future: self._done(stream, kind, future))

    def gone(self, stream: int) -> None:
        """Called by the session: the caller no longer waits for this call."""
        self._forget(stream)

    def room(self, stream: int) -> None:
        """Called by the session: a watch may send more."""
        waiter = self._room.pop(stream, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def stop(self) -> None:
        """End all calls with UNAVAILABLE: the server cannot wait for them."""
        for stream in list(self._open):
            self._forget(stream)
            self._end(stream, UNAVAILABLE, "the server is stopping")

    def close(self) -> None:
        """The connection is gone: cancel all calls."""
        self.session = None
        for stream in list(self._open):
            self._forget(stream)

    async def _watch(self, stream: int, messages: AsyncIterator[bytes]) -> None:
        try:
            async for message in messages:
                if self.session is None:
                    return
                go_on = self.session.send(stream, message)
                self._changed()
                if not go_on:
                    self._room[stream] = self._loop.create_future()
                    await self._room[stream]
        finally:
            self._room.pop(stream, None)
            aclose = getattr(messages, "aclose", None)
            if aclose is not None:
                await aclose()

    def _done(self, stream: int, kind: int, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if not self._forget(stream) or self.session is None:
            return
        if future.cancelled():
            self.session.end(stream, CANCELLED, "the call was cancelled")
        elif error is not None:
            self.session.fail(stream, error)
        elif kind == WATCH:
            self.session.end(stream, OK, "")
        else:
            self.session.answer(stream, future.result())
        self._changed()

    def _late(self, stream: int) -> None:
        if self._forget(stream):
            self._end(stream, DEADLINE_EXCEEDED, "the deadline was exceeded")

    def _end(self, stream: int, code: int, message: str) -> None:
        if self.session is not None:
            self.session.end(stream, code, message)
            self._changed()

    def _forget(self, stream: int) -> bool:
        """Forget a call; returns whether it was open."""
        future, timer = self._open.pop(stream, (None, None))
        if timer is not None:
            timer.cancel()
        if future is not None:
            future.cancel()
        return future is not None
