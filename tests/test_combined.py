"""Several limits in one text, wherever a limit is taken. See also properties/test_combined.py."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock import (
    AsyncLimiter,
    Limit,
    Limiter,
    LimitError,
    LimitExceeded,
    MemoryStore,
    PenstockError,
)
from penstock.testing import FakeClock

TEXT = "2/minute; 3/day fixed_window"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def limiter(clock: FakeClock) -> Limiter:
    return Limiter(TEXT, store=MemoryStore(clock=clock))


def left(limiter: Limiter, key: str = "k") -> list[int]:
    return [limiter.peek(key, text).remaining for text in TEXT.split(";")]


def test_the_decision_is_that_of_the_limit_that_speaks(clock: FakeClock, limiter: Limiter) -> None:
    decision = limiter.hit("k")
    assert (decision.allowed, str(decision.limit), decision.remaining) == (True, "2/minute", 1)
    limiter.hit("k")
    refused = limiter.hit("k")
    assert (refused.allowed, str(refused.limit), refused.retry_after) == (False, "2/minute", 30.0)
    assert left(limiter) == [0, 1]  # the refused one took nothing from the day
    clock.advance(60)
    assert limiter.hit("k")
    refused = limiter.hit("k")
    assert (refused.allowed, str(refused.limit)) == (False, "3/day fixed_window")
    assert left(limiter) == [1, 0]  # nor that one from the minute


def test_every_verb_takes_it_as_its_limit(clock: FakeClock) -> None:
    limiter = Limiter(store=MemoryStore(clock=clock))
    assert limiter.hit("k", TEXT)
    assert limiter.peek("k", TEXT).remaining == 1
    assert [d.allowed for d in limiter.hit_many(["k", "k", "j"], TEXT)] == [True, False, True]
    limiter.refund("k", 1, TEXT)
    assert left(limiter) == [1, 2]
    limiter.reset("k", TEXT)
    assert left(limiter) == [2, 3]
    assert limiter.hit_all([("k", TEXT), ("k", "2/minute")])
    assert left(limiter) == [0, 2]  # named twice: its costs add up
    assert not limiter.wait("k", TEXT, timeout=0)
    with limiter.slot("j2", TEXT) as decision:
        assert decision.remaining == 1
    assert repr(Limiter(TEXT, limiter.store)).startswith(
        "Limiter('2/minute; 3/day fixed_window', store="
    )


def test_a_reservation_settles_each_limit(limiter: Limiter) -> None:
    with limiter.reserve("k", cost=2) as reservation:
        assert left(limiter) == [0, 1]
        reservation.settle(1)
    assert left(limiter) == [1, 2]
    with limiter.reserve("k") as reservation:
        reservation.settle(2)
    assert left(limiter) == [0, 0]
    assert not limiter.reserve("k")
    with pytest.raises(LimitExceeded):
        limiter.reserve("k").settle(0)


def test_a_reservation_gives_back_what_has_not_come_back_by_itself(clock: FakeClock) -> None:
    limiter = Limiter(TEXT, store=MemoryStore(clock=clock))
    reservation = limiter.reserve("k", cost=2)
    clock.advance(60)  # both units of the minute have come back
    limiter.hit("k")
    reservation.settle(0)
    assert left(limiter) == [1, 2]


def test_a_lockout_of_one_limit_waits_for_undecided_units(clock: FakeClock) -> None:
    limiter = Limiter("1/minute lockout 1h; 5/day", store=MemoryStore(clock=clock))
    reservation = limiter.reserve("k")
    assert not limiter.reserve("k")  # no violation: the unit may be given back
    reservation.cancel()
    with limiter.reserve("k"):
        pass
    assert limiter.reserve("k").decision.retry_after == 3600
    assert limiter.peek("k", "5/day").remaining == 4


def test_waiting_until_all_allow_it(clock: FakeClock, limiter: Limiter) -> None:
    began = clock.now()
    waited = [clock.now() - began for _ in range(3) if limiter.wait("k")]
    assert waited == [0, 0, 30 * 10**9]
    refused = limiter.wait("k", timeout=3600)
    assert (refused.allowed, str(refused.limit)) == (False, "3/day fixed_window")
    assert clock.now() - began == 30 * 10**9  # it was known at once
    never = limiter.wait("k", cost=3)
    assert (never.allowed, never.retry_after) == (False, None)


def test_waiting_in_a_leaky_bucket_beside_another_limit(clock: FakeClock) -> None:
    text = "1/second leaky_bucket burst 2; 10/hour"
    limiter = Limiter(text, store=MemoryStore(clock=clock))
    began = clock.now()
    assert limiter.wait("k")
    assert limiter.wait("k")
    assert clock.now() - began == 10**9  # its turn
    assert not limiter.wait("k", timeout=0.5)
    assert clock.now() - began == 10**9
    assert limiter.peek("k", "10/hour").remaining == 8
    assert not limiter.wait("k", timeout=0)
    assert limiter.peek("k", "10/hour").remaining == 8


def test_a_decorated_function_gives_back_to_each(clock: FakeClock) -> None:
    limiter = Limiter(store=MemoryStore(clock=clock))

    @limiter.limit(TEXT, key="k")
    @limiter.limit("1/hour", key="inner")
    def call() -> str:
        return "done"

    assert call() == "done"
    with pytest.raises(LimitExceeded, match="1/hour"):
        call()
    assert left(limiter) == [1, 2]


def test_tasks(clock: FakeClock) -> None:
    async def main() -> None:
        limiter = AsyncLimiter(TEXT, store=MemoryStore(clock=clock))
        assert await limiter.hit("k")
        assert (await limiter.peek("k")).remaining == 1
        assert [d.allowed for d in await limiter.hit_many(["k", "k"])] == [True, False]
        await limiter.refund("k", 2)
        async with limiter.reserve("k", cost=2) as reservation:
            await reservation.settle(1)
        assert (await limiter.wait("k")).allowed
        assert not await limiter.wait("k", timeout=0)
        await limiter.reset("k")
        assert (await limiter.hit_all([("k", TEXT), ("j", "1/s")])).remaining == 0

        @limiter.limit(TEXT, key="k")
        async def call() -> str:
            return "done"

        assert await call() == "done"
        with pytest.raises(LimitExceeded):
            await call()

    asyncio.run(main())


def test_a_cancelled_wait_takes_nothing(clock: FakeClock) -> None:
    text = "1/second leaky_bucket burst 5; 10/hour"

    async def main() -> None:
        limiter = AsyncLimiter(text, store=MemoryStore())
        assert await limiter.wait("k")
        waiting = asyncio.ensure_future(limiter.wait("k"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert (await limiter.peek("k", "10/hour")).remaining == 8
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await limiter.peek("k", "10/hour")).remaining == 9

    asyncio.run(main())


def test_waiters_of_equal_texts_stand_in_one_queue() -> None:
    limiter = Limiter("2/minute; 3/day")
    assert limiter.counters("2/minute;3/day") == limiter.counters(None)
    assert hash(limiter.counters("2/minute;3/day")) == hash(limiter.counters(None))
    assert limiter.counters("2/minute;4/day") != limiter.counters(None)


def test_all_or_nothing_in_many_threads() -> None:
    """One limit has run out for ever: threads that ask for both must never touch the other."""
    store = MemoryStore(clock=FakeClock())
    limiter = Limiter(store=store)
    text = "1000/hour; 40/day fixed_window"
    allowed: list[bool] = []
    begin = threading.Barrier(8)

    def ask() -> None:
        begin.wait()
        for _ in range(300):
            if limiter.hit("k", text):
                allowed.append(True)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(allowed) == 40
    assert limiter.peek("k", "1000/hour").remaining == 960


@pytest.mark.parametrize(
    ("verb", "args"), [("attempt", ("k", 1, 5)), ("refund", ("k", 1, 12345, 0))]
)
def test_what_has_no_meaning_for_several_is_an_error(verb: str, args: Any) -> None:
    with pytest.raises(PenstockError):
        getattr(Limiter(TEXT).counters(None), verb)(*args)


def test_a_wrong_one_of_several_is_an_error_at_once() -> None:
    with pytest.raises(LimitError, match="'9/hor' has an unknown unit"):
        Limiter("5/minute; 9/hor")
    with pytest.raises(LimitError, match="twice"):
        Limiter().hit("k", "5/minute|5/minute")


# A limit of 0 ---------------------------------------------------------------------------------

ALGORITHMS = ("token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_limit_of_0_closes(algorithm: str, clock: FakeClock) -> None:
    store = MemoryStore(clock=clock)
    limiter = Limiter(Limit(0, "minute", algorithm=algorithm), store=store)
    decision = limiter.hit("k")
    assert (decision.allowed, decision.remaining, decision.retry_after) == (False, 0, None)
    assert not limiter.peek("k")
    assert not limiter.wait("k")
    assert not limiter.reserve("k")
    assert not limiter.hit_all([("k", None), ("k", "5/minute")])
    assert limiter.peek("k", "5/minute").remaining == 5
    with pytest.raises(LimitExceeded, match="never at this cost"), limiter.slot("k"):
        pass
    limiter.refund("k")
    limiter.reset("k")
    assert not limiter.hit("k")
    assert store.keys == 0


def test_one_of_several_may_be_closed(clock: FakeClock) -> None:
    limiter = Limiter("5/minute; 0/day", store=MemoryStore(clock=clock))
    refused = limiter.hit("k")
    assert (refused.allowed, str(refused.limit), refused.retry_after) == (False, "0/day", None)
    assert limiter.peek("k", "5/minute").remaining == 5


def test_a_lockout_of_a_closed_limit_says_nothing(clock: FakeClock) -> None:
    limiter = Limiter("0/minute lockout 15m", store=MemoryStore(clock=clock))
    assert [limiter.hit("k").retry_after for _ in range(2)] == [None, None]
    assert not limiter.reserve("k")
