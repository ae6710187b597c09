"""A limiter that is switched off: it allows everything, counts nothing and asks no store."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable
from typing import Any

import pytest

from penstock import AsyncLimiter, InvalidCost, InvalidKey, Limiter, MemoryStore
from penstock.decision import Decision
from penstock.limits import Limit
from penstock.stores.base import Counters, Store

LIMITS = [
    "2/hour", "0/hour", "2/hour leaky_bucket burst 1", "2/hour fixed_window", "2/hour sliding_log",
    "2/hour sliding_window", "2/hour lockout 1h", "2/hour; 1/day",
]  # fmt: skip


class NeverAsked(Store):
    """A store that must not be asked."""

    waits = True
    closed = False

    def make_counters(self, limit: Limit, name: str | None = None) -> Counters:
        raise AssertionError("the store was asked")

    def hit_each(
        self, wanted: list[tuple[Counters, str, int]], attempt: bool = False
    ) -> list[Decision]:
        raise AssertionError("the store was asked")

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("text", LIMITS)
def test_every_verb_passes(text: str) -> None:
    limiter = Limiter(text, NeverAsked(), name="n", enabled=False)
    assert all(limiter.hit("k", cost=1000) for _ in range(9))
    assert limiter.peek("k")
    assert not limiter.peek("k").last
    assert all(limiter.hit_many(["a", "a", "a", "b"]))
    assert limiter.hit_all([("a", None), ("b", "1/day", 7)])
    assert all(limiter.wait("k", timeout=0) for _ in range(9))
    assert all(limiter.wait("k", timeout="1h", jitter="1ns") for _ in range(9))
    assert limiter.charge("k", 100)
    assert limiter.hit_up_to("k", 100).taken == 100
    assert list(limiter.limited("abcd", key="k", on_refused="raise")) == list("abcd")
    with limiter.slot("k") as decision, limiter.reserve("k", cost=50) as reservation:
        assert decision
        assert reservation.delay == 0
        reservation.settle(100)
    limiter.refund("k", 3)
    limiter.reset("k")
    limiter.reset()
    assert limiter.limit(key="k")(lambda: "ran")() == "ran"


def test_a_reservation_for_later_is_for_now() -> None:
    limiter = Limiter("1/hour", NeverAsked(), enabled=False)
    reservations = [limiter.reserve("k", max_delay=0) for _ in range(5)]
    assert [reservation.delay for reservation in reservations] == [0.0] * 5
    reservations[0].cancel()


@pytest.mark.parametrize("text", LIMITS)
def test_every_verb_passes_in_tasks(text: str) -> None:
    async def main() -> None:
        limiter = AsyncLimiter(text, NeverAsked(), enabled=False)
        assert all([await limiter.hit("k", cost=9) for _ in range(9)])
        assert await limiter.peek("k")
        assert all(await limiter.hit_many(["a", "a", "a"]))
        assert await limiter.hit_all([("a", None), ("b", "1/day")])
        assert all(await asyncio.gather(*[limiter.wait("k") for _ in range(9)]))
        assert await limiter.charge("k", 9)
        assert (await limiter.hit_up_to("k", 9)).taken == 9
        assert [item async for item in limiter.limited("abc", on_refused="raise")] == [
            "a",
            "b",
            "c",
        ]
        async with limiter.slot("k"), limiter.reserve("k", cost=9) as reservation:
            await reservation.settle(1)
        await limiter.refund("k", 1)
        await limiter.reset("k")
        await limiter.reset()

        @limiter.limit
        async def run() -> str:
            return "ran"

        assert [await run() for _ in range(5)] == ["ran"] * 5

    asyncio.run(main())


def test_the_environment_switches_limiters_off_when_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Limiter("1/hour")
    monkeypatch.setenv("PENSTOCK_ENABLED", "0")
    off, on = Limiter("1/hour"), Limiter("1/hour", enabled=True)
    assert [bool(off.hit("k")) for _ in range(3)] == [True] * 3
    for limiter in (before, on):
        assert [bool(limiter.hit("k")) for _ in range(2)] == [True, False]

    async def main() -> list[bool]:
        limiter = AsyncLimiter("1/hour")
        return [bool(await limiter.hit("k")) for _ in range(3)]

    assert asyncio.run(main()) == [True] * 3
    monkeypatch.setenv("PENSTOCK_ENABLED", "maybe")
    with pytest.raises(ValueError, match="PENSTOCK_ENABLED is 1, 0, true or false"):
        Limiter("1/hour")


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_the_option_is_true_or_false(kind: Any) -> None:
    with pytest.raises(TypeError, match="enabled is True or False, not 'no'"):
        kind("1/hour", enabled="no")
    with pytest.raises(TypeError, match="enabled is True or False, not 'no'"):
        kind("1/hour").limit("1/hour", enabled="no")


def test_wrong_arguments_are_errors_all_the_same() -> None:
    limiter = Limiter("1/hour", enabled=False)
    with pytest.raises(InvalidKey):
        limiter.hit("")
    with pytest.raises(InvalidCost):
        limiter.hit("k", cost=0)
    with pytest.raises(InvalidKey):
        limiter.reset("")
    with pytest.raises(InvalidCost):
        limiter.limit(cost=-1, enabled=False)
    with pytest.raises(InvalidKey):
        limiter.limit(key="", enabled=False)(len)


def test_it_closes_its_store_and_shows_that_it_is_off() -> None:
    store = NeverAsked()
    limiter = Limiter("1/hour", store, enabled=False)
    assert "switched off" in repr(limiter)
    limiter.store.clear()
    limiter.store.close()
    assert store.closed


def test_a_decorator_can_be_switched_off_on_its_own() -> None:
    limiter = Limiter("1/hour", MemoryStore())

    @limiter.limit("1/hour", key="k", enabled=False)
    def free(items: Iterable[int]) -> int:
        return sum(items)

    assert [free([1, 2]) for _ in range(3)] == [3] * 3
    assert limiter.hit("k")
    assert list(inspect.signature(free).parameters) == ["items"]

    class Shop:
        @limiter.limit(enabled=False)
        @classmethod
        def name(cls) -> str:
            return cls.__name__

    assert [Shop.name() for _ in range(3)] == ["Shop"] * 3
    with pytest.raises(TypeError, match=r"is not async: use Limiter\.limit"):
        AsyncLimiter("1/hour").limit(enabled=False)(free)  # type: ignore[type-var]  # the point
