"""Eight threads on one key: exactly the allowed number, and none refused that fits."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from penstock import Decision, Limit, Limiter, MemoryStore
from penstock.testing import FakeClock

THREADS = 8
SECOND = 10**9
LIMITS = [
    "800/hour",
    "800/hour leaky_bucket",
    "800/hour fixed_window",
    "800/hour fixed_window align first_hit",
    "800/hour fixed_window tz Europe/Berlin",
    "800/hour sliding_window",
    "800/hour sliding_log",
    "800/hour sliding_log count_rejected",
    "800/hour lockout 1h",
    "700/hour fixed_window soft 100 for 1h",
]


@pytest.fixture(autouse=True)
def _impatient_interpreter() -> Iterator[None]:
    """Switch threads as often as can be, so that a race shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Run ``work(number)`` in so many threads that start as one; errors come out."""
    barrier, errors = threading.Barrier(threads), []

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("text", LIMITS)
def test_exactly_the_allowed_number_gets_through(text: str) -> None:
    limiter = Limiter(text, store=MemoryStore(clock=FakeClock()))
    allowed: list[int] = []
    together(lambda _: allowed.append(sum(bool(limiter.hit("k")) for _ in range(300))))
    assert sum(allowed) == 800


@pytest.mark.parametrize("text", LIMITS)
def test_none_is_refused_that_fits(text: str) -> None:
    limiter = Limiter(text, store=MemoryStore(clock=FakeClock()))
    refused: list[Decision] = []

    def work(_: int) -> None:
        refused.extend(d for d in (limiter.hit("k") for _ in range(100)) if not d)

    together(work)
    assert refused == []


def test_every_unit_is_given_out_once() -> None:
    """What remains after each hit counts down without a gap and without a repetition."""
    limiter = Limiter("4000/hour", store=MemoryStore(clock=FakeClock()))
    seen: list[int] = []
    together(lambda _: seen.extend(limiter.hit("k").remaining for _ in range(500)))
    assert sorted(seen) == list(range(4000))


def test_keys_of_many_threads_are_all_kept() -> None:
    limiter = Limiter("1/hour", store=MemoryStore(clock=FakeClock()))
    keys = [f"key {n}" for n in range(4000)]
    allowed: list[int] = []
    together(lambda _: allowed.append(sum(bool(limiter.hit(key)) for key in keys)))
    assert sum(allowed) == len(keys)
    assert limiter.store.keys == len(keys)


def test_batches_of_threads_are_exact() -> None:
    limiter = Limiter("7/hour", store=MemoryStore(clock=FakeClock()))
    keys = [f"key {n % 100}" for n in range(200)]
    allowed: list[int] = []
    together(lambda _: allowed.append(sum(map(bool, limiter.hit_many(keys)))))
    assert sum(allowed) == 700


def test_all_or_nothing_holds_under_threads() -> None:
    limiter = Limiter(store=MemoryStore(clock=FakeClock()))
    scarce, plenty = Limit(500, "hour"), Limit(100_000, "hour")
    allowed: list[int] = []

    def work(_: int) -> None:
        wanted = [("user", plenty, 3), ("ip", scarce)]
        allowed.append(sum(bool(limiter.hit_all(wanted)) for _ in range(200)))

    together(work)
    assert sum(allowed) == 500
    assert limiter.peek("user", plenty).remaining == 100_000 - 3 * 500


def test_reservations_of_threads_add_up() -> None:
    limiter = Limiter("100000/hour", store=MemoryStore(clock=FakeClock()))

    def work(number: int) -> None:
        for used in range(100):
            limiter.reserve("k", cost=50).settle(used)

    together(work)
    assert limiter.peek("k").remaining == 100_000 - THREADS * sum(range(100))


@pytest.mark.parametrize("text", ["100/second burst 1", "50/500ms burst 5"])
def test_waiting_threads_are_let_through_exactly_in_time(text: str) -> None:
    """Each sleeps only as long as it must, so 400 hits take 400 intervals less the burst."""
    clock = FakeClock()
    limiter, start = Limiter(text, store=MemoryStore(clock=clock)), clock.now()
    times: list[int] = []

    def work(_: int) -> None:
        for _ in range(50):
            assert limiter.wait("k")
            times.append(clock.now() - start)

    together(work)
    burst = Limit.parse(text).burst
    assert clock.now() - start == (400 - burst) * SECOND // 100
    assert len(times) == 400
    for number, when in enumerate(sorted(times)):
        assert when >= (number + 1 - burst) * SECOND // 100
    assert len(limiter.thread_waiters) == 0


def test_waiting_threads_go_in_order_of_arrival() -> None:
    clock = FakeClock(autojump=False)
    limiter = Limiter("1/second", store=MemoryStore(clock=clock))
    limiter.hit("k")
    served: list[int] = []

    def work(number: int) -> None:
        if limiter.wait("k", cost=1):
            served.append(number)

    threads = []
    for number in range(THREADS):
        threads.append(threading.Thread(target=work, args=(number,), daemon=True))
        threads[-1].start()
        until(lambda: len(limiter.thread_waiters) == len(threads))
    for count in range(1, THREADS + 1):
        clock.advance(1)
        until(lambda: len(served) == count)  # noqa: B023  # asked before the next turn
    for thread in threads:
        thread.join(60)
    assert served == list(range(THREADS))
    assert len(limiter.thread_waiters) == 0


def test_a_thread_in_line_gives_up_by_the_clock_of_the_store() -> None:
    clock = FakeClock(autojump=False)
    limiter = Limiter("1/hour", store=MemoryStore(clock=clock))
    limiter.hit("k")
    answers: list[Decision] = []
    waits = [
        threading.Thread(
            target=lambda timeout=timeout: answers.append(limiter.wait("k", timeout=timeout)),
            daemon=True,
        )
        for timeout in (None, 60)
    ]
    for number, thread in enumerate(waits, 1):
        thread.start()
        until(lambda number=number: len(limiter.thread_waiters) == number)
    for _ in range(300):  # in steps: it may not yet have begun to wait
        clock.advance(1)
        waits[1].join(0.005)
        if not waits[1].is_alive():
            break
    given_up = not waits[1].is_alive()
    clock.advance(3600)
    waits[0].join(60)
    assert given_up, "its minute is long over on the store's clock"
    assert [bool(answer) for answer in answers] == [False, True]


def until(condition: Callable[[], bool]) -> None:
    """Let other threads run until it holds."""
    while not condition():
        threading.Event().wait(0.0005)
