"""Both limiters as they are used: options, slots, threads, decorators."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.concurrency import (
    HIGH,
    LOW,
    AsyncConcurrencyLimiter,
    ConcurrencyLimiter,
    State,
)
from penstock.errors import (
    InvalidKey,
    LimitError,
    LineFull,
    NoSlot,
    PenstockError,
    WaitedTooLong,
)
from penstock.testing import FakeClock


def until(condition: Callable[[], bool]) -> None:
    """Let other threads run until it holds."""
    for _ in range(20_000):
        if condition():
            return
        threading.Event().wait(0.0005)
    raise AssertionError("it never came to be")


# Options ---------------------------------------------------------------------------


@pytest.mark.parametrize("limiter", [ConcurrencyLimiter, AsyncConcurrencyLimiter])
@pytest.mark.parametrize(
    ("args", "options", "kind", "says"),
    [
        ((0,), {}, ValueError, "at least 1, not 0"),
        ((True,), {}, TypeError, "a whole number such as 4"),
        ((2.5,), {}, TypeError, "a whole number such as 4"),
        (("4",), {}, TypeError, "a whole number such as 4"),
        ((1,), {"waiting": -1}, ValueError, "a whole number such as 100"),
        ((1,), {"waiting": None}, ValueError, "a whole number such as 100"),
        ((1,), {"patience": 0}, LimitError, "above zero"),
        ((1,), {"fair": "yes"}, TypeError, "fair is True or False"),
        ((1,), {"shares": [0.5]}, TypeError, "a dict such as"),
        ((1,), {"shares": {"low": 0.5}}, TypeError, "HIGH, NORMAL or LOW"),
        ((1,), {"shares": {LOW: 1.5}}, LimitError, "above 0 and at most 1"),
        ((1,), {"shares": {LOW: 0.9, HIGH: 0.5}}, ValueError, "must not fall"),
        ((1,), {"clock": 5}, TypeError, "clock"),
        ((1,), {"store": object()}, TypeError, "RedisStore"),
    ],
)
def test_wrong_options_say_what_is_right(
    limiter: Any, args: tuple[Any, ...], options: dict[str, Any], kind: type, says: str
) -> None:
    if "store" in options:
        pytest.importorskip("redis")
    with pytest.raises(kind, match=says):
        limiter(*args, **options)


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        ({"key": ""}, InvalidKey),
        ({"key": 4}, InvalidKey),
        ({"priority": "high"}, TypeError),
        ({"priority": True}, TypeError),
        ({"timeout": -1}, ValueError),
        ({"by": ["a"]}, TypeError),
    ],
)
def test_wrong_arguments_of_a_slot(args: dict[str, Any], kind: type) -> None:
    for limiter in (ConcurrencyLimiter(1), AsyncConcurrencyLimiter(1)):
        with pytest.raises(kind):
            limiter.slot(**args)


def test_how_they_are_shown() -> None:
    assert repr(ConcurrencyLimiter(4, waiting=100)) == "ConcurrencyLimiter(4, waiting=100)"
    assert repr(AsyncConcurrencyLimiter(4)) == "AsyncConcurrencyLimiter(4)"
    with ConcurrencyLimiter(4).slot("transcode") as hold:
        assert repr(hold) == "<Hold of 'transcode'>"


@pytest.mark.parametrize("kind", [NoSlot, LineFull, WaitedTooLong])
def test_errors_come_back_from_other_processes(kind: type[NoSlot]) -> None:
    error = pickle.loads(pickle.dumps(kind("transcode", 4, 7, "the queue is full")))
    assert type(error) is kind
    assert (error.key, error.running, error.waiting) == ("transcode", 4, 7)
    assert str(error) == "no slot for 'transcode', 4 running, 7 waiting: the queue is full"
    assert isinstance(error, TimeoutError) is (kind is WaitedTooLong)


# Threads ----------------------------------------------------------------------------


def test_a_slot_and_what_is_known_of_it() -> None:
    clock = FakeClock()
    limiter = ConcurrencyLimiter(2, waiting=5, clock=clock)
    assert limiter.state("a") == State(limit=2, running=0, waiting=0)
    with limiter.slot("a") as hold, limiter.slot("b"):
        assert (hold.key, hold.waited, hold.lost, hold.degraded) == ("a", 0.0, False, False)
        assert limiter.state("a") == State(2, 1, 0)
        with limiter.slot("a"):
            assert limiter.state("a") == State(2, 2, 0)
            with pytest.raises(LineFull, match="no time to wait") as refused:
                limiter.slot("a", timeout=0).__enter__()
            assert (refused.value.running, refused.value.waiting) == (2, 0)
    assert limiter.state("a") == State(2, 0, 0)
    assert limiter._slots.queues == {}


def test_without_a_line_all_are_refused_at_once() -> None:
    limiter = ConcurrencyLimiter(1)
    with limiter.slot(), pytest.raises(LineFull, match=r"all slots are taken$"):
        limiter.slot().__enter__()


def test_a_slot_is_given_back_whatever_the_block_raises() -> None:
    limiter = ConcurrencyLimiter(1)
    for error in (ValueError, KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(error), limiter.slot():
            raise error
    with limiter.slot():
        pass


def test_one_slot_object_is_one_slot() -> None:
    limiter = ConcurrencyLimiter(5)
    slot = limiter.slot()
    with slot, pytest.raises(PenstockError, match="held already"), slot:
        pass
    with slot:
        assert limiter.state().running == 1
    assert limiter.state().running == 0


def test_threads_wait_in_order_and_time_out_by_the_limiters_clock() -> None:
    clock = FakeClock(autojump=False)
    limiter, log = ConcurrencyLimiter(1, waiting=10, clock=clock), []

    def work(name: str, **options: Any) -> None:
        try:
            with limiter.slot(**options) as hold:
                log.append((name, hold.waited))
        except WaitedTooLong as error:
            log.append((name, error.running, error.waiting))

    threads = []
    with limiter.slot():
        for name, options in [
            ("slow", {"priority": LOW}),
            ("brief", {"timeout": 5}),
            ("first", {"priority": HIGH}),
            ("next", {}),
        ]:
            threads.append(threading.Thread(target=work, args=(name,), kwargs=options))
            threads[-1].start()
            until(lambda: limiter.state().waiting == len(threads))
        clock.advance(4.999)
        threads[1].join(0.02)
        assert log == []
        clock.advance(0.001)
        threads[1].join(60)
        assert log == [("brief", 1, 4)]
        clock.advance(1)
    for thread in threads:
        thread.join(60)
    assert log[1:] == [("first", 6.0), ("next", 6.0), ("slow", 6.0)]


def test_threads_are_never_more_than_the_limit() -> None:
    limiter, lock = ConcurrencyLimiter(3, waiting=100, fair=True), threading.Lock()
    inside, most, refused = 0, 0, 0

    def work(number: int) -> None:
        nonlocal inside, most, refused
        for turn in range(40):
            timeout = (None, 0.001, 0)[(turn + number) % 3]
            try:
                with limiter.slot(priority=turn % 3 - 1, by=number % 4, timeout=timeout):
                    with lock:
                        inside += 1
                        most = max(most, inside)
                    if turn % 7 == 0:
                        time.sleep(0.0005)
                    with lock:
                        inside -= 1
                    if turn % 11 == 0:
                        raise ValueError
            except NoSlot:
                with lock:
                    refused += 1
            except ValueError:
                pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "somebody waits for a slot that was lost"
    assert (inside, most) == (0, 3)
    assert refused
    assert limiter._slots.queues == {}


def test_an_interrupted_thread_leaves_the_line() -> None:
    limiter = ConcurrencyLimiter(1, waiting=5)

    def interrupt() -> None:
        until(lambda: limiter.state().waiting == 1)
        os.kill(os.getpid(), signal.SIGINT)

    with limiter.slot():
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            limiter.slot().__enter__()
        thread.join(60)
        assert limiter.state() == State(1, 1, 0)
    assert limiter.state() == State(1, 0, 0)


def test_a_forked_child_starts_with_all_slots_free() -> None:
    # A fresh interpreter: one that runs pytest has too much in it to be forked.
    code = (
        "import os; from penstock.concurrency import ConcurrencyLimiter as C\n"
        "limiter = C(1)\n"
        "with limiter.slot():\n"
        "    if os.fork() == 0:\n"
        "        with limiter.slot(): os._exit(0 if limiter.state().running == 1 else 2)\n"
        "    assert os.wait()[1] == 0 and limiter.state().running == 1\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_needs_no_redis() -> None:
    code = "import sys; sys.modules['redis'] = None; import penstock.concurrency"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


# Decorators ---------------------------------------------------------------------------


async def test_a_decorated_function_runs_in_a_slot_of_its_key() -> None:
    limiter = ConcurrencyLimiter(1, waiting=5)

    @limiter.limit(key="shared", timeout=0)
    def plain() -> int:
        """Says how many."""
        return limiter.state("shared").running

    @limiter.limit(key=lambda user: f"user:{user}")
    async def by_user(user: str) -> int:
        return limiter.state(f"user:{user}").running

    async def key_of(user: str) -> str:
        return f"async:{user}"

    @limiter.limit(key=key_of, by=key_of)
    async def by_async_key(user: str) -> int:
        return limiter.state(f"async:{user}").running

    @limiter.limit()
    def by_its_name() -> int:
        return limiter.state(f"{__name__}.{by_its_name.__qualname__}").running

    assert (plain(), await by_user("ann"), await by_async_key("ann"), by_its_name()) == (1, 1, 1, 1)
    assert plain.__doc__ == "Says how many."
    with limiter.slot("shared"), pytest.raises(LineFull):
        plain()


def test_what_cannot_be_decorated() -> None:
    limiter = ConcurrencyLimiter(1)

    def generator() -> Any:
        yield

    async def agenerator() -> Any:
        yield

    async def key() -> str:
        return "k"

    for function in (generator, agenerator):
        with pytest.raises(TypeError, match="runs after it was called"):
            limiter.limit(key="k")(function)
    with pytest.raises(TypeError, match="is not async: use ConcurrencyLimiter"):
        AsyncConcurrencyLimiter(1).limit(key="k")(lambda: 1)
    with pytest.raises(InvalidKey):
        limiter.limit(key=4)(lambda: 1)
    with pytest.raises(InvalidKey, match="cannot be either"):
        limiter.limit(key=key)(lambda: 1)
    with pytest.raises(TypeError, match="cannot be either"):
        limiter.limit(key="k", by=key)(lambda: 1)
    with pytest.raises(ValueError, match="timeout"):
        limiter.limit(key="k", timeout=-1)
