"""The page for users of fastapi-limiter."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.types import Message
from starlette.websockets import WebSocket

from migrating.checks import check_names, check_row, left_names
from migrating.tables import Row, names_of, programs, rows, run
from migrating.web import STEPS

depends = pytest.importorskip("fastapi_limiter.depends")

PAGE = "coming-from-fastapi-limiter"
ROWS = rows(PAGE)
COMPARED = [row for row in ROWS if row.theirs[0].startswith("Depends")]


def test_the_quick_starts_answer_alike() -> None:
    def statuses(fence: str) -> list[int]:
        # An hour for five seconds: a slow machine answers the same
        source = programs(PAGE, fence).replace("Duration.SECOND * 5", "Duration.HOUR")
        names: dict[str, Any] = {"__name__": "__docs__"}
        run(source.replace("2/5s", "2/hour"), names)
        with TestClient(names["app"]) as client:
            return [client.get("/").status_code for _ in range(4)]

    assert statuses("py") == statuses("python") == [200, 200, 429, 429]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_both_sides_of_a_row_run(row: Row) -> None:
    function = "async def view(): ..."
    ours = {**names_of(PAGE, "python"), "websocket": new_websocket()}
    check_row(row, names_of(PAGE, "py"), function, ours, function)


def new_websocket() -> WebSocket:
    async def receive() -> Message:
        return {"type": "websocket.disconnect", "code": 1000}

    async def send(message: Message) -> None: ...

    return WebSocket({"type": "websocket", "headers": []}, receive, send)


def test_the_websockets_answer_alike() -> None:
    def answers(fence: str) -> list[str]:
        names: dict[str, Any] = {"__name__": "__docs__"}
        run(programs(PAGE, fence), names)
        with TestClient(names["app"]) as client, client.websocket_connect("/chat") as session:
            received = []
            for number in range(5):
                session.send_text(str(number))
                received.append(session.receive_text())
            return received

    expected = ["got 0", "got 1", "got 2", "slow down", "slow down"]
    assert answers("py") == answers("python") == expected


@pytest.mark.parametrize("row", COMPARED, ids=str)
def test_both_sides_of_a_row_answer_alike(row: Row) -> None:
    def statuses(spans: tuple[str, ...], fence: str) -> list[int]:
        names, app = names_of(PAGE, fence), FastAPI()
        for path in ("/a", "/b"):
            dependency = run(spans[0], names)
            app.add_api_route(
                path, lambda: "done", methods=["GET", "POST"], dependencies=[dependency]
            )
        with TestClient(app) as client:
            return [
                client.request(method, path, headers={"x-tenant": tenant}).status_code
                for method, path, tenant in STEPS
            ]

    alike = statuses(row.theirs, "py") == statuses(row.ours, "python")
    assert alike is not row.differs


def test_nothing_of_fastapi_limiter_is_left_out() -> None:
    wanted = {
        *("RateLimiter", "WebSocketRateLimiter", "skip_limiter", "default_callback"),
        *("default_identifier",),
        *inspect.signature(depends.RateLimiter).parameters,
        *inspect.signature(depends.WebSocketRateLimiter).parameters,
    }
    check_names(wanted, left_names(ROWS))
