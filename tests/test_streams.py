"""What `limited` iterates over: messages of a WebSocket, and nothing that only looks like it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from penstock import AsyncLimiter, Limiter, LimitExceeded, MemoryStore
from penstock.testing import FakeClock


def limiter_of(text: str = "3/hour") -> AsyncLimiter:
    return AsyncLimiter(text, MemoryStore(clock=FakeClock()))


def test_each_message_of_a_websocket_passes_the_limit() -> None:
    app, limiter = FastAPI(), limiter_of()

    @app.websocket("/chat")
    async def chat(websocket: WebSocket, user: str) -> None:
        await websocket.accept()
        messages = limiter.limited(websocket.iter_text(), key=user, on_refused="raise")
        try:
            async for message in messages:
                await websocket.send_text(f"got {message}")
        except LimitExceeded as refused:
            await websocket.close(1008, f"again in {refused.decision.retry_after:.0f} s")

    client = TestClient(app)
    with client.websocket_connect("/chat?user=ann") as session:
        for message in ("one", "two", "three"):
            session.send_text(message)
            assert session.receive_text() == f"got {message}"
        session.send_text("four")
        with pytest.raises(WebSocketDisconnect) as closed:
            session.receive_text()
        assert (closed.value.code, closed.value.reason) == (1008, "again in 1200 s")
    with client.websocket_connect("/chat?user=bob") as session:
        session.send_text("one")
        assert session.receive_text() == "got one"


def test_messages_that_are_refused_are_dropped_also_as_bytes_and_json() -> None:
    limiter = limiter_of()

    async def count(websocket: WebSocket) -> None:
        await websocket.accept()
        kinds = {"bytes": websocket.iter_bytes, "json": websocket.iter_json}
        items = kinds[websocket.query_params["as"]]()
        received = [item async for item in limiter.limited(items, on_refused="drop")]
        seen.append(received)

    seen: list[list[Any]] = []
    client = TestClient(Starlette(routes=[WebSocketRoute("/", count)]))
    with client.websocket_connect("/?as=bytes") as session:
        for number in range(5):
            session.send_bytes(b"%d" % number)
    with client.websocket_connect("/?as=json") as session:
        for number in range(5):
            session.send_json({"n": number})
    # Without a key, each connection has a count of its own.
    assert seen == [[b"0", b"1", b"2"], [{"n": 0}, {"n": 1}, {"n": 2}]]


def test_a_websocket_itself_is_an_error_that_says_what_to_write() -> None:
    said: list[str] = []

    async def chat(websocket: WebSocket) -> None:
        await websocket.accept()
        for limiter in (limiter_of(), Limiter("3/hour")):
            with pytest.raises(TypeError, match=r"limited\(websocket.iter_text\(\)") as error:
                limiter.limited(websocket, key="k")  # at once, not with the first message
            said.append(str(error.value))

    with TestClient(Starlette(routes=[WebSocketRoute("/", chat)])).websocket_connect("/"):
        pass
    assert len(said) == 2


def test_other_things_that_have_no_items_are_errors_at_once() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(TypeError, match="is async: use AsyncLimiter, and async for"):
        Limiter("3/hour").limited(numbers(), key="k")  # type: ignore[arg-type]  # the point
    for limiter in (limiter_of(), Limiter("3/hour")):
        with pytest.raises(TypeError, match=r"items that can be iterated over.*, not 5"):
            limiter.limited(5, key="k")  # type: ignore[arg-type]  # the point


class OldStyle:
    """Iterated over by index, as some containers still are."""

    def __getitem__(self, index: int) -> int:
        if index >= 2:
            raise IndexError
        return index


def test_what_can_be_iterated_over_passes() -> None:
    limiter = Limiter("9/hour")
    assert list(limiter.limited(OldStyle())) == [0, 1]  # type: ignore[arg-type]  # mypy knows not
    assert list(limiter.limited({"a": 1})) == ["a"]

    async def main() -> list[Any]:
        return [item async for item in limiter_of().limited([1, 2])]

    assert asyncio.run(main()) == [1, 2]


def test_without_a_key_each_stream_has_its_own_count() -> None:
    limiter = Limiter("2/hour")
    for _ in range(3):
        assert list(limiter.limited("abcd", on_refused="drop")) == ["a", "b"]
