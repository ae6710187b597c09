"""Limiter: the verbs, what they take, and what they answer."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from penstock import (
    InvalidCost,
    InvalidKey,
    Limit,
    Limiter,
    LimitError,
    MemoryStore,
    PenstockError,
    UnsupportedLimit,
)
from penstock.stores.base import Counters, Store
from penstock.testing import FakeClock

OTHER = Limit(3, "minute")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def limiter(clock: FakeClock) -> Limiter:
    return Limiter("5/minute", store=MemoryStore(clock=clock))


def test_the_first_five_minutes() -> None:
    """The issue's first example, on the real clock."""
    limiter = Limiter("100/minute")
    decision = limiter.hit("user:42")
    assert decision
    assert (decision.allowed, decision.remaining, decision.retry_after) == (True, 99, 0.0)
    assert decision.limit == Limit(100, "minute")


def test_a_limit_is_given_as_text_or_as_itself(clock: FakeClock) -> None:
    for limit in ("2/minute", Limit(2, "minute")):
        limiter = Limiter(limit, MemoryStore(clock=clock))
        assert [bool(limiter.hit("k")) for _ in range(3)] == [True, True, False]


def test_arguments_have_their_places_and_names(limiter: Limiter) -> None:
    assert limiter.hit("k", OTHER, 2).remaining == 1
    assert limiter.hit(key="k", limit="3/minute", cost=1).remaining == 0
    limiter.refund("k", 2, OTHER)
    limiter.refund(key="k", cost=1, limit=OTHER)
    assert limiter.peek("k", OTHER, 3).allowed
    assert limiter.peek(key="k", limit=OTHER, cost=1).remaining == 3
    assert limiter.wait("k", OTHER, 2, 0.5).remaining == 1
    assert limiter.wait(key="k", limit=OTHER, cost=1, timeout=0.5).remaining == 0
    limiter.reset("k", OTHER)
    assert limiter.hit("k", OTHER, cost=3)
    limiter.reset(key="k", limit=OTHER)
    assert limiter.hit_many(["k"], OTHER, 2)[0].remaining == 1
    assert limiter.hit_many(keys=["k"], limit=OTHER, cost=1)[0].remaining == 0
    assert limiter.peek("k").remaining == 5, "the limiter's own limit was not touched"


def test_without_a_limit_of_its_own_each_call_names_one() -> None:
    limiter = Limiter()
    assert limiter.hit("k", "5/minute")
    for ask in (limiter.hit, limiter.peek, limiter.wait, limiter.reserve, limiter.reset):
        with pytest.raises(
            LimitError,
            match=r"^no limit: make one with Limiter\('100/minute'\) or name one in this call$",
        ):
            ask("k")
    for ask_more in (lambda: limiter.hit_many(["k"]), lambda: limiter.hit_all([("k", None)])):
        with pytest.raises(LimitError, match=r"^no limit"):
            ask_more()


@pytest.mark.parametrize("limit", ["100 apples", 5, b"5/minute", ("5", "minute"), ["5/minute"]])
def test_a_wrong_limit_is_an_error_in_every_call(limiter: Limiter, limit: Any) -> None:
    for ask in (limiter.hit, limiter.peek, limiter.wait, limiter.reserve, limiter.reset):
        with pytest.raises(LimitError):
            ask("k", limit)
    with pytest.raises(LimitError):
        Limiter(limit)


@pytest.mark.parametrize("store", [b"redis://", MemoryStore, 0, FakeClock()])
def test_a_store_is_a_store(store: Any) -> None:
    with pytest.raises(TypeError, match=r"^store is a Store such as MemoryStore\(\), or a URL "):
        Limiter("5/minute", store=store)


def test_a_store_may_refuse_a_limit_when_the_limiter_is_made() -> None:
    class Picky(Store):
        def counters(self, limit: Limit) -> Counters:
            raise UnsupportedLimit("not here")

    with pytest.raises(UnsupportedLimit, match=r"^not here$"):
        Limiter("5/minute", store=Picky())


def test_limiters_over_one_store_share_its_state(clock: FakeClock) -> None:
    store = MemoryStore(clock=clock)
    first, second = Limiter("2/minute", store), Limiter(Limit(2, 60), store)
    assert [bool(limiter.hit("k")) for limiter in (first, second, first, second)] == [
        True, True, False, False,
    ]  # fmt: skip
    assert Limiter("2/minute").hit("k"), "a limiter without a store has one of its own"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "a key is a non-empty str, this one is empty"),
        (7, "a key is a non-empty str, not int: 7; write '7'"),
        (b"k", "a key is a non-empty str, not bytes: b'k'"),
        (None, "a key is a non-empty str, not NoneType: None"),
    ],
)
def test_a_key_is_a_non_empty_str(limiter: Limiter, key: Any, message: str) -> None:
    for ask in (limiter.hit, limiter.peek, limiter.wait, limiter.refund, limiter.reset):
        with pytest.raises(InvalidKey) as caught:
            ask(key)
        assert str(caught.value) == message
    with pytest.raises(InvalidKey):
        limiter.hit_many(["ok", key])
    with pytest.raises(InvalidKey):
        limiter.hit_all([(key, None)])


def test_a_subclass_of_str_is_the_key_that_it_spells(limiter: Limiter) -> None:
    class Shouting(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return True

    assert limiter.hit(Shouting("k"), cost=5)
    assert not limiter.hit("k")
    assert limiter.hit(Shouting("another"))


@pytest.mark.parametrize("cost", [0, -1, 1.0, "1", None, True])
def test_a_cost_is_a_whole_number_of_at_least_one(limiter: Limiter, cost: Any) -> None:
    for ask in (limiter.hit, limiter.peek, limiter.wait, limiter.reserve):
        with pytest.raises(InvalidCost, match=r"^cost is "):
            ask("k", cost=cost)
    with pytest.raises(InvalidCost):
        limiter.refund("k", cost)
    with pytest.raises(InvalidCost):
        limiter.hit_many(["k"], cost=cost)
    with pytest.raises(InvalidCost):
        limiter.hit_all([("k", None, cost)])
    assert limiter.peek("k").remaining == 5


def test_errors_are_both_ours_and_of_a_kind_that_python_knows() -> None:
    for ours, kind in ((InvalidKey, TypeError), (InvalidCost, ValueError)):
        assert issubclass(ours, PenstockError)
        assert issubclass(ours, kind)


def test_hit_many_decides_on_each_key_by_itself(limiter: Limiter) -> None:
    assert limiter.hit_many([]) == []
    keys = ["a", "b", "a", "a"]
    assert [d.remaining for d in limiter.hit_many(iter(keys), cost=2)] == [3, 3, 1, 1]
    assert [bool(d) for d in limiter.hit_many(keys, cost=2)] == [False, True, False, False]


def test_hit_many_of_more_than_a_batch_agrees_with_single_hits(limiter: Limiter) -> None:
    keys = [f"k{n * n % 97}" for n in range(1000)]
    many = limiter.hit_many(keys, OTHER)
    twin = Limiter(OTHER, MemoryStore(clock=FakeClock()))
    assert [repr(d) for d in many] == [repr(twin.hit(key)) for key in keys]


def test_hit_many_takes_nothing_when_one_key_is_wrong(limiter: Limiter) -> None:
    with pytest.raises(InvalidKey):
        limiter.hit_many(["a", "b", ""])
    with pytest.raises(InvalidKey, match=r"^hit_many takes several keys, not the one str 'ab'$"):
        limiter.hit_many("ab")
    assert limiter.peek("a").remaining == 5


def test_hit_all_answers_with_the_scarcest(limiter: Limiter) -> None:
    decision = limiter.hit_all([("u", None), ("ip", OTHER), ("all", "1000/day")])
    assert (decision.allowed, decision.limit, decision.remaining) == (True, OTHER, 2)


def test_hit_all_answers_with_the_longest_wait(limiter: Limiter) -> None:
    slow, slower = Limit(1, "hour"), Limit(1, "day")
    for key, limit in (("a", slow), ("b", slower)):
        limiter.hit(key, limit)
    refused = limiter.hit_all([("a", slow), ("b", slower), ("c", None)])
    assert (refused.limit, refused.retry_after) == (slower, 86_400.0)
    never = limiter.hit_all([("b", slower), ("c", None, 6), ("a", slow)])
    assert (never.limit, never.retry_after) == (Limit(5, "minute"), None)
    assert limiter.peek("c").remaining == 5


def test_a_refused_hit_all_locks_the_limit_that_refused_and_takes_from_none(
    limiter: Limiter, clock: FakeClock
) -> None:
    strict, loose = Limit(2, "minute", lockout="15m"), Limit(10, "hour")
    calm = Limit(9, "minute", lockout="15m")
    wanted = [("user", loose, 2), ("ip", strict), ("path", calm)]
    assert limiter.hit_all(wanted)
    assert limiter.hit_all(wanted)
    refused = limiter.hit_all(wanted)
    assert (refused.limit, refused.retry_after) == (strict, 900.0)
    assert limiter.peek("user", loose).remaining == 6
    assert limiter.peek("path", calm).remaining == 7, "it did not refuse and is not locked"
    clock.advance(600)  # its units came back long ago, but the door is shut
    assert not limiter.hit_all(wanted)
    assert limiter.peek("ip", strict).retry_after == 300.0
    clock.advance(300)
    assert limiter.hit_all(wanted)


def test_hit_all_adds_up_one_key_of_one_limit(limiter: Limiter) -> None:
    assert limiter.hit_all([("u", None, 2), ("u", Limit(5, 60), 3)]).remaining == 0
    assert limiter.hit_all([("v", None), ("v", OTHER)]).limit == OTHER, "two limits stay two"


@pytest.mark.parametrize("item", ["u", ("u",), ("u", None, 1, 1), ["u", None], None])
def test_hit_all_takes_pairs_and_triples(limiter: Limiter, item: Any) -> None:
    with pytest.raises(PenstockError, match=r"^hit_all takes \(key, limit\) or"):
        limiter.hit_all([("u", None), item])
    assert limiter.peek("u").remaining == 5


def test_hit_all_of_nothing_is_an_error(limiter: Limiter) -> None:
    with pytest.raises(PenstockError, match=r"^hit_all was given nothing to decide on$"):
        limiter.hit_all([])


def test_of_limits_in_calls_only_so_many_are_remembered(limiter: Limiter) -> None:
    """However a caller spells them; what was counted stays."""

    class Text(str):
        """A text that one can see go."""

    alive = weakref.WeakSet()
    for spaces in range(3000):
        text = Text("3000/day" + " " * spaces)
        alive.add(text)
        assert limiter.hit("k", text)
    assert not limiter.hit("k", "3000/day")
    del text
    assert len(alive) <= 1024


def test_repr_says_what_it_limits(clock: FakeClock) -> None:
    assert repr(Limiter("5/minute")) == (
        "Limiter('5/minute', store=<MemoryStore 0 of 1000000 keys>)"
    )
    limiter = Limiter("1/minute", MemoryStore(clock=clock))
    assert repr(limiter.hit("k")) == (
        "<Decision allowed limit='1/minute' remaining=0 reset_after=60.0 last>"
    )
    assert repr(limiter.hit("k")) == (
        "<Decision refused limit='1/minute' remaining=0 retry_after=60.0 reset_after=60.0>"
    )


def test_a_decision_cannot_be_made_up(limiter: Limiter) -> None:
    decision = limiter.hit("k")
    for name in ("allowed", "remaining", "retry_after", "limit"):
        with pytest.raises(AttributeError):
            setattr(decision, name, 1)
    assert decision.degraded is False
