"""CircuitBreaker as people use it: blocks, functions, verbs, threads, tasks, hooks."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from penstock.breaker import CircuitBreaker, CircuitChanged, _entered
from penstock.errors import CircuitOpen, LimitError, PenstockError
from penstock.events import Event
from penstock.testing import FakeClock


class Down(Exception):
    """The other side does not answer."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breaker(clock: FakeClock) -> CircuitBreaker:
    return CircuitBreaker(2, pause=1, longest_pause=8, name="api", clock=clock, chance=lambda: 1.0)


def fail(breaker: CircuitBreaker, times: int = 2) -> None:
    for _ in range(times):
        with pytest.raises(Down), breaker:
            raise Down("no answer")


def test_a_block_runs_until_it_opens_and_again_after_a_probe(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    with breaker as inside:
        assert inside is breaker
    fail(breaker)
    assert breaker.state == "open"
    ran = False
    with pytest.raises(CircuitOpen) as caught, breaker:
        ran = True
    assert not ran
    assert caught.value.name == "api"
    assert caught.value.retry_after == breaker.retry_after == 1.0
    assert str(caught.value) == "'api' is open: Down: no answer; retry after 1.000 s"
    clock.advance(1)
    with breaker:
        assert breaker.state == "half-open"
        with pytest.raises(CircuitOpen), breaker:
            pass
    assert breaker.state == "closed"
    assert breaker.retry_after == 0.0


async def test_tasks_share_one_probe(breaker: CircuitBreaker, clock: FakeClock) -> None:
    fail(breaker)
    clock.advance(1)
    go, results = asyncio.Event(), []

    async def call() -> None:
        try:
            async with breaker:
                await go.wait()
                results.append("probe")
        except CircuitOpen:
            results.append("refused")

    tasks = [asyncio.create_task(call()) for _ in range(20)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*tasks)
    assert sorted(results) == ["probe"] + ["refused"] * 19
    assert breaker.state == "closed"


async def test_a_cancelled_probe_is_neither_and_gives_its_place_back(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    fail(breaker)
    clock.advance(1)

    async def hang() -> None:
        async with breaker:
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await asyncio.sleep(0)
    assert breaker.allows() is None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert breaker.state == "half-open"
    async with breaker:
        pass
    assert breaker.state == "closed"


async def test_cancelled_calls_are_not_counted_while_it_is_closed(
    breaker: CircuitBreaker,
) -> None:
    for error in (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit):
        for _ in range(3):
            with pytest.raises(error):
                async with breaker:
                    raise error
    fail(breaker, 2)
    assert breaker.state == "open", "two of two, not two of fourteen"


async def test_what_a_call_says_counts_by_when_it_began(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    """An old call ends well in half-open: it is not the probe, and frees no place."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def old() -> None:
        async with breaker:
            begun.set()
            await go.wait()

    task = asyncio.create_task(old())
    await begun.wait()
    fail(breaker)
    clock.advance(1)
    probe = breaker.allows()
    go.set()
    await task
    assert breaker.state == "half-open"
    assert breaker.allows() is None
    breaker.failed(probe)
    assert breaker.state == "open"


def test_a_function_behind_it(breaker: CircuitBreaker) -> None:
    @breaker
    def double(number: int) -> int:
        """Twice."""
        if number < 0:
            raise Down
        return 2 * number

    assert (double(4), double.__name__, double.__doc__) == (8, "double", "Twice.")
    for _ in range(2):
        with pytest.raises(Down):
            double(-1)
    with pytest.raises(CircuitOpen):
        double(4)


async def test_an_async_function_behind_it(breaker: CircuitBreaker) -> None:
    @breaker
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        if number < 0:
            raise Down
        return 2 * number

    assert asyncio.iscoroutinefunction(double)
    assert await double(4) == 8
    for _ in range(2):
        with pytest.raises(Down):
            await double(-1)
    with pytest.raises(CircuitOpen):
        await double(4)


def test_a_generator_is_refused_because_it_runs_later(breaker: CircuitBreaker) -> None:
    def rows() -> Iterator[int]:
        yield 1

    async def rows_async() -> AsyncIterator[int]:
        yield 1

    for function in (rows, rows_async):
        with pytest.raises(TypeError, match="with breaker:"):
            breaker(function)
    with pytest.raises(TypeError, match="decorates a function"):
        breaker(7)  # type: ignore[type-var]  # that is the point


def test_a_block_that_ends_in_another_context_still_counts(breaker: CircuitBreaker) -> None:
    """As frameworks do that run the two halves of a dependency in two threads."""

    def elsewhere(call: Any, *args: object) -> None:
        thread = threading.Thread(target=call, args=args)
        thread.start()
        thread.join()

    for _ in range(2):
        elsewhere(breaker.__enter__)
        elsewhere(breaker.__exit__, Down, Down("no"), None)
    assert breaker.state == "open"


COUNTS = [
    (Down, Down("x"), "open"),
    (Down, ValueError("x"), "closed"),
    ((Down, ValueError), ValueError("x"), "open"),
    ((), ValueError("x"), "closed"),
    (lambda error: "5" in str(error), OSError("status 503"), "open"),
    (lambda error: "5" in str(error), OSError("status 404"), "closed"),
    (Exception, CircuitOpen("another", 1.0, "down"), "closed"),
]


@pytest.mark.parametrize(("counts", "error", "state"), COUNTS)
def test_what_is_a_failure(counts: Any, error: Exception, state: str) -> None:
    breaker = CircuitBreaker(1, counts=counts)
    with pytest.raises(type(error)), breaker:
        raise error
    assert breaker.state == state


def test_an_error_that_does_not_count_is_an_answer(clock: FakeClock) -> None:
    breaker = CircuitBreaker(1, counts=Down, clock=clock, pause=1, chance=lambda: 1.0)
    fail(breaker, 1)
    clock.advance(1)
    with pytest.raises(ValueError, match="not found"), breaker:
        raise ValueError("not found")
    assert breaker.state == "closed"


def test_by_hand(breaker: CircuitBreaker, clock: FakeClock) -> None:
    breaker.trip("maintenance")
    assert (breaker.state, breaker.reason) == ("open", "maintenance")
    breaker.trip("twice")
    assert (breaker.reason, breaker.retry_after) == ("maintenance", 1.0)
    breaker.close()
    assert breaker.state == "closed"
    fail(breaker, 1)
    breaker.close()
    fail(breaker, 1)
    assert breaker.state == "closed", "closing forgets what was counted"
    assert repr(breaker) == "<CircuitBreaker 'api': closed>"


def test_hooks_hear_every_change_and_may_ask_back(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    heard: list[tuple[str, str, str, str]] = []

    def hook(event: Event) -> None:
        assert isinstance(event, CircuitChanged)
        heard.append((event.store, event.before, event.state, event.reason))
        assert breaker.state == event.state
        assert breaker.retry_after >= 0

    breaker.subscribe(hook)
    fail(breaker)
    clock.advance(1)
    fail(breaker, 1)
    clock.advance(2)
    with breaker:
        pass
    breaker.unsubscribe(hook)
    breaker.trip("unheard")
    why = "Down: no answer"
    assert heard == [
        ("api", "closed", "open", why),
        ("api", "open", "half-open", why),
        ("api", "half-open", "open", why),
        ("api", "open", "half-open", why),
        ("api", "half-open", "closed", why),
    ]


def test_a_block_that_was_left_is_forgotten(breaker: CircuitBreaker) -> None:
    other = CircuitBreaker()
    with breaker, other, breaker:
        assert [inside for inside, _ in _entered.get()] == [breaker, other, breaker]
    assert _entered.get() == ()


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_never_get_more_probes_than_there_are(clock: FakeClock) -> None:
    breaker = CircuitBreaker(1, pause=1, longest_pause=1, probes=3, clock=clock, chance=lambda: 1.0)
    changes: list[Event] = []
    breaker.subscribe(changes.append)
    for _ in range(50):
        breaker.trip("again")
        clock.advance(1)
        start, permits = threading.Barrier(8), list[object]()

        def ask(start: threading.Barrier = start, permits: list[object] = permits) -> None:
            start.wait()
            permits.extend(breaker.allows() for _ in range(5))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(permit is not None for permit in permits) == 3
    assert len(changes) == 100, "each change is told once"


def test_nobody_looks_in_while_another_thread_opens_it(clock: FakeClock) -> None:
    inside, go_on, seen = threading.Event(), threading.Event(), list[object]()

    def chance() -> float:
        """Asked in the middle of opening."""
        inside.set()
        go_on.wait(60)
        return 1.0

    breaker = CircuitBreaker(clock=clock, chance=chance)
    opener = threading.Thread(target=breaker.trip, args=("down",))
    opener.start()
    assert inside.wait(60)
    asker = threading.Thread(target=lambda: seen.append(breaker.allows()))
    asker.start()
    asker.join(0.1)
    go_on.set()
    opener.join()
    asker.join()
    assert seen == [None]


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"failures": 0}, ValueError, "failures is a whole number of at least 1, not 0"),
    ({"failures": 2.5}, ValueError, "failures is a whole number"),
    ({"failures": True}, ValueError, "failures is a whole number"),
    ({"probes": 0}, ValueError, "probes is a whole number"),
    ({"ratio": 1.5}, ValueError, "ratio is a number from 0 to 1"),
    ({"ratio": float("nan")}, ValueError, "ratio is a number from 0 to 1"),
    ({"ratio": "half"}, ValueError, "ratio is a number from 0 to 1"),
    ({"window": 0}, LimitError, "window must be above zero"),
    ({"pause": "soon"}, LimitError, "pause 'soon'"),
    ({"longest_pause": -1}, LimitError, "longest_pause must be above zero"),
    ({"pause": 5, "longest_pause": 1}, ValueError, "longest_pause 1 is below pause 5"),
    ({"name": ""}, ValueError, "name is a non-empty str"),
    ({"clock": 7}, TypeError, "a clock has now"),
    ({"counts": 7}, TypeError, "counts is types of exceptions"),
    ({"counts": (Down, "Down")}, TypeError, "counts has 'Down'"),
    ({"counts": asyncio.CancelledError}, TypeError, "is never a failure"),
]


@pytest.mark.parametrize(("options", "kind", "message"), WRONG)
def test_wrong_options_are_errors(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        CircuitBreaker(**options)


def test_the_error_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(CircuitOpen("api", 1.5, "down")))
    assert isinstance(error, PenstockError)
    assert (error.name, error.retry_after, error.reason) == ("api", 1.5, "down")
