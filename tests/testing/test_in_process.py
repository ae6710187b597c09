"""The clock, the switch and the fresh start of all limits that a process has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet, ref

import pytest
from starlette.testclient import TestClient

from penstock import (
    AsyncLimiter,
    CircuitBreaker,
    Gate,
    Limiter,
    LimitExceeded,
    MemoryStore,
    SharedMemoryStore,
    switch,
)
from penstock.breaker import BREAKERS
from penstock.integrations.asgi import PenstockMiddleware
from penstock.stores import memory
from penstock.testing import FakeClock, allow_all, forget_counts, use_clock
from penstock.testing.conformance import LIMITS

RULES = {"domain": "web", "descriptors": [{"key": "user", "limits": "1/minute"}]}


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def allowed(limiter: Limiter, hits: int = 3, **options: Any) -> list[bool]:
    return [limiter.hit("k", **options).allowed for _ in range(hits)]


# use_clock ------------------------------------------------------------------------------------


def test_a_limiter_made_before_uses_the_clock() -> None:
    limiter = Limiter("1/hour")
    with use_clock(clock := FakeClock()):
        assert allowed(limiter) == [True, False, False]
        clock.advance_ns(3600 * 10**9 - 1)
        assert not limiter.hit("k")
        clock.advance_ns(1)
        assert limiter.hit("k")


def test_a_limiter_and_a_limit_made_inside_use_the_clock() -> None:
    before = Limiter()
    with use_clock(clock := FakeClock()):
        for limiter in (Limiter("1/hour"), Limiter()):
            assert allowed(limiter, limit="1/hour") == [True, False, False]
        assert allowed(before, limit="1/hour") == [True, False, False]
        clock.advance(3600)
        assert before.hit("k", limit="1/hour")
        assert limiter.hit("k", limit="1/hour")


@pytest.mark.parametrize("text", LIMITS)
def test_every_kind_of_limit_uses_the_clock_and_goes_back_to_its_own(text: str) -> None:
    limiter = Limiter(text)
    assert limiter.default is not None
    before = limiter.default.clock
    with use_clock(clock := FakeClock()):
        assert limiter.default.now() == clock.now()
        while limiter.hit("k"):
            pass
        clock.advance(3600)
        assert limiter.hit("k")
        while limiter.hit("k"):
            pass
    assert limiter.default.clock is before
    assert abs(limiter.default.now() - before.now()) < 60 * 10**9
    assert limiter.hit("k")  # the counts of the block are forgotten


def test_a_warm_up_begins_with_the_block() -> None:
    limiter = Limiter("60/minute warm_up 10m")
    with use_clock(clock := FakeClock()):
        assert limiter.hit("k").remaining < 59
        clock.advance(600)
        assert limiter.hit("other").remaining == 59


def test_a_full_store_knows_by_the_clock_which_keys_are_live() -> None:
    store = MemoryStore(max_keys=20)
    hours, buckets = Limiter("1/hour fixed_window", store), Limiter("1/hour", store)
    with use_clock(FakeClock()):  # years ago
        for number in range(20):
            hours.hit(f"k{number}")
        for number in range(5):
            buckets.hit(f"k{number}")
        assert store.evictions == 5


def test_waiting_takes_no_real_time() -> None:
    limiter = Limiter("1/day")
    with use_clock(clock := FakeClock()):
        start = clock.now()
        limiter.hit("k")
        assert limiter.wait("k")
        assert clock.now() - start == 86400 * 10**9


def test_a_store_with_a_clock_of_its_own_keeps_it() -> None:
    own = FakeClock()
    limiter = Limiter("1/minute", store=MemoryStore(clock=own))
    with use_clock(clock := FakeClock()):
        assert allowed(limiter, 2) == [True, False]
        clock.advance(60)
        assert not limiter.hit("k")
        own.advance(60)
        assert limiter.hit("k")


def test_the_inner_clock_counts() -> None:
    limiter = Limiter("1/minute")
    with use_clock(outer := FakeClock()):
        with use_clock(inner := FakeClock(7)):
            assert limiter.default is not None
            assert limiter.default.now() == inner.now()
        assert limiter.default.now() == outer.now()


@pytest.mark.parametrize("wrong", [None, 5])
def test_what_is_no_clock_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="clock"), use_clock(wrong):
        pass
    assert memory.on_new_counters is None


def test_combined_limits_gates_and_middleware_use_the_clock() -> None:
    combined = Limiter("1/minute; 2/day")
    gate = Gate.from_rules(RULES)
    client = TestClient(PenstockMiddleware(hello, limit="1/minute"))
    with use_clock(clock := FakeClock()):
        for _ in range(2):
            assert allowed(combined, 2) == [True, False]
            assert [gate.check({"user": "7"}).allowed for _ in range(2)] == [True, False]
            assert [client.get("/").status_code for _ in range(2)] == [200, 429]
            clock.advance(60)
        assert allowed(combined, 1) == [False]


def test_nothing_stays_behind() -> None:
    with use_clock(FakeClock()), allow_all():
        assert memory.on_new_counters is not None
    assert memory.on_new_counters is None
    assert switch.off == 0
    with pytest.raises(ZeroDivisionError), use_clock(FakeClock()), allow_all():
        _ = 1 / 0
    assert memory.on_new_counters is None
    assert switch.off == 0


# allow_all ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*LIMITS, "0/day", "2/minute; 5/day"])
def test_every_kind_of_limit_allows_everything(text: str) -> None:
    limiter = Limiter(text)
    with allow_all():
        assert all(allowed(limiter, 1000))
        assert limiter.hit("k", cost=10**6)
        assert limiter.peek("k")
        assert limiter.hit_many(["k"] * 20)[-1]
        assert limiter.wait("k", timeout=0)
        assert Limiter(text).hit("k", cost=10**6)
    hits = [limiter.hit("k").allowed for _ in range(100)]
    assert hits[0] is (text != "0/day")
    assert hits[-1] is False


def test_with_a_clock_too_in_either_order() -> None:
    limiter = Limiter("1/day fixed_window")
    assert limiter.default is not None
    before = limiter.default.clock
    for blocks in ((allow_all(), use_clock(FakeClock())), (use_clock(FakeClock()), allow_all())):
        with blocks[0], blocks[1]:
            assert all(allowed(limiter))
        assert limiter.default.clock is before
        assert allowed(limiter) == [True, False, False]


async def test_decorated_functions_gates_and_tasks_are_allowed() -> None:
    limiter, tasks, gate = Limiter("1/day"), AsyncLimiter("1/day"), Gate.from_rules(RULES)

    @limiter.limit(key="all")
    def send() -> str:
        return "sent"

    with allow_all():
        assert [send() for _ in range(3)] == ["sent"] * 3
        assert all([await tasks.hit("k") for _ in range(3)])
        assert all(gate.check({"user": "7"}).allowed for _ in range(3))
    send()
    with pytest.raises(LimitExceeded):
        send()


def test_middleware_is_switched_off_in_all_threads() -> None:
    client = TestClient(PenstockMiddleware(hello, limit="1/minute"))
    statuses = []
    with allow_all():
        thread = threading.Thread(
            target=lambda: statuses.extend(client.get("/").status_code for _ in range(3))
        )
        thread.start()
        thread.join()
    assert statuses == [200] * 3
    assert [client.get("/").status_code for _ in range(2)] == [200, 429]


def test_limiters_with_another_store_decide_but_middleware_does_not_ask(tmp_path: Any) -> None:
    store = SharedMemoryStore(tmp_path / "limits")
    client = TestClient(PenstockMiddleware(hello, limit="1/minute", store=store))
    with allow_all():
        assert allowed(Limiter("1/hour", store=store)) == [True, False, False]
        assert [client.get("/").status_code for _ in range(3)] == [200] * 3
    store.close()


# forget_counts --------------------------------------------------------------------------------


@pytest.mark.parametrize("text", LIMITS)
def test_all_counts_are_forgotten(text: str) -> None:
    limiter = Limiter(text)
    while limiter.hit("k"):
        pass
    forget_counts()
    assert limiter.hit("k")


def test_breakers_are_closed() -> None:
    breaker = CircuitBreaker(failures=2, ratio=0)
    breaker.trip("by hand")
    forget_counts()
    assert breaker.state == "closed"
    breaker.failed()
    forget_counts()
    breaker.failed()
    assert breaker.state == "closed"  # one failure was forgotten


@pytest.mark.parametrize(
    ("make", "known"), [(MemoryStore, memory.STORES), (CircuitBreaker, BREAKERS)]
)
def test_nothing_is_kept_alive(make: Callable[[], Any], known: WeakSet[Any]) -> None:
    thing = make()
    assert thing in known
    reference = ref(thing)
    del thing
    assert reference() is None
