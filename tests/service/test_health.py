"""Health, and grpc.health.v1 on top of it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.service.grpc_status import INVALID_ARGUMENT, NOT_FOUND, GrpcError
from penstock.service.health import RATELIMIT, STORE, WHOLE, Health, Part
from penstock.wires.grpc.health import CHECK, WATCH, health_methods
from service.rls_messages import message_class

Request = message_class("grpc.health.v1.HealthCheckRequest")
Response = message_class("grpc.health.v1.HealthCheckResponse")


def test_all_is_well_to_begin_with() -> None:
    health = Health(["store"])
    assert health.serving()
    assert health.serving(RATELIMIT)
    assert health.serving(STORE)
    assert health.knows(STORE)


@pytest.mark.parametrize(
    ("changes", "well"),
    [
        ([(RATELIMIT, False)], {WHOLE: False, RATELIMIT: False, STORE: True}),
        ([(STORE, False)], {WHOLE: True, RATELIMIT: True, STORE: False}),
        ([(WHOLE, False)], {WHOLE: False, RATELIMIT: False, STORE: False}),
        ([(WHOLE, False), (WHOLE, True)], {WHOLE: True, RATELIMIT: True, STORE: True}),
        ([(RATELIMIT, False), (RATELIMIT, True)], {WHOLE: True, RATELIMIT: True, STORE: True}),
    ],
)
def test_parts_and_the_whole(changes: list[tuple[str, bool]], well: dict[str, bool]) -> None:
    health = Health([RATELIMIT, STORE])
    for name, ok in changes:
        health.set(name, ok, "because")
    assert {name: part.ok for name, part in health.parts().items()} == well


def test_reasons() -> None:
    health = Health([RATELIMIT, STORE])
    health.set(RATELIMIT, False, "no rules")
    assert health.part(RATELIMIT) == Part(False, "no rules")
    assert health.part() == Part(False, "ratelimit: no rules")
    health.set(WHOLE, False, "draining")
    assert health.part() == health.part(STORE) == Part(False, "draining")
    assert health.part("else") == Part(False, "unknown")
    assert not health.serving("else")
    health.set("else", True, "forgotten")
    assert health.part("else") == Part(False, "draining")


def test_who_subscribed_is_told_of_changes() -> None:
    health = Health()
    heard: list[str] = []
    health.subscribe(heard.append)
    health.set(STORE, True)
    health.set(STORE, True)
    health.set(STORE, False, "down")
    health.unsubscribe(heard.append)
    health.set(STORE, True)
    assert heard == [STORE, STORE]


def test_check() -> None:
    health = Health([STORE])
    check = health_methods(health).unary[CHECK]

    def status(name: str) -> str:
        answer = check(Request(service=name).SerializeToString())
        assert isinstance(answer, bytes)
        number = Response.FromString(answer).status
        return str(Response.ServingStatus.Name(number))

    assert status("") == status(RATELIMIT) == status(STORE) == "SERVING"
    health.set(STORE, False)
    assert status("") == "SERVING"
    assert status(STORE) == "NOT_SERVING"
    with pytest.raises(GrpcError, match="no such service: 'else'") as caught:
        status("else")
    assert caught.value.code == NOT_FOUND


@pytest.mark.parametrize(
    "message", [b"\x0a", b"\x0a\x01\xff", b"\x0b\x0c", b"\x00", b"\x0a\xff\xff", b"\x80" * 11]
)
def test_no_such_request(message: bytes) -> None:
    methods = health_methods(Health())
    for call in (methods.unary[CHECK], methods.watch[WATCH]):
        with pytest.raises(GrpcError, match="not a valid HealthCheckRequest") as caught:
            call(message)
        assert caught.value.code == INVALID_ARGUMENT


def test_a_long_name() -> None:
    message = Request(service="x" * 2_000).SerializeToString()
    with pytest.raises(GrpcError, match="1000 characters"):
        health_methods(Health()).unary[CHECK](message)


async def test_watch() -> None:
    health = Health()
    watching = health_methods(health).watch[WATCH](Request(service=STORE).SerializeToString())
    assert await anext(watching) == b"\x08\x03"  # not known, but perhaps later
    for ok in (True, False, True):
        coming = asyncio.ensure_future(anext(watching))
        health.set("else", ok)  # says nothing of this one
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not coming.done()
        health.set(STORE, ok)
        assert await coming == (b"\x08\x01" if ok else b"\x08\x02")
    await watching.aclose()  # type: ignore[attr-defined]  # it is a generator
    assert health._listeners == []


async def test_watch_hears_of_other_threads() -> None:
    health = Health()
    watching = health_methods(health).watch[WATCH](b"")
    assert await anext(watching) == b"\x08\x01"
    thread = threading.Thread(target=health.set, args=(WHOLE, False, "draining"))
    thread.start()
    assert await asyncio.wait_for(anext(watching), 60) == b"\x08\x02"
    thread.join()
    await watching.aclose()  # type: ignore[attr-defined]  # it is a generator


def test_a_loop_that_is_gone_is_no_harm() -> None:
    health = Health()

    async def watch() -> object:
        watching = health_methods(health).watch[WATCH](b"")
        await anext(watching)
        return watching

    watching = asyncio.run(watch())  # run closes what it finds open
    health.set(WHOLE, False)
    del watching
