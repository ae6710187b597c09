"""Several limits in one text: the same as an account kept by hand over each of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock import Limit
from penstock.limits import limits_of
from penstock.testing import FakeClock
from properties.strategies import costs, limits, steps
from twins import load_pure

PURE = load_pure()
FIELDS = (
    "allowed", "remaining", "retry_after", "reset_after", "last", "delay", "overrun", "_mark",
)  # fmt: skip
ROOM = {"max_keys": 100, "bytes_per_key": 20_000}
VERBS = ("hit", "hit", "hit", "peek", "refund", "reset", "settle", "hit_many", "hit_all")


def told(decision: Any) -> list[Any]:
    return [str(decision.limit), *(getattr(decision, field) for field in FIELDS)]


class Combined:
    """What is to be tested: one text."""

    def __init__(self, library: ModuleType, store: Any, texts: list[str]) -> None:
        self.limiter = library.Limiter(" ; ".join(texts), store=store)

    def hit(self, cost: int) -> Any:
        return self.limiter.hit("k", cost=cost)

    def peek(self, cost: int) -> Any:
        return self.limiter.peek("k", cost=cost)

    def refund(self, cost: int) -> None:
        self.limiter.refund("k", cost)

    def reset(self) -> None:
        self.limiter.reset("k")

    def hit_many(self, cost: int) -> list[Any]:
        return list(self.limiter.hit_many(["k", "k"], cost=cost))

    def hit_all(self, cost: int) -> Any:
        return self.limiter.hit_all([("k", None, cost)])

    def settle(self, clock: FakeClock, cost: int, later: int, actual: int) -> Any:
        reservation = self.limiter.reserve("k", cost=cost)
        if reservation:
            clock.advance_ns(later)
            reservation.settle(actual)
        return reservation.decision


class ByHand:
    """Naive: look at each limit alone, then take from each if all would let it pass."""

    def __init__(self, store: Any, texts: list[str]) -> None:
        self.counters = [store.counters(Limit.parse(text)) for text in texts]

    def hit(self, cost: int) -> Any:
        return speaks(self._hit(cost))

    def _hit(self, cost: int) -> list[Any]:
        seen = [each.peek("k", cost) for each in self.counters]
        passes = all(seen)
        return [
            each.hit("k", cost) if passes or not look else look
            for each, look in zip(self.counters, seen, strict=True)
        ]

    def peek(self, cost: int) -> Any:
        return speaks([each.peek("k", cost) for each in self.counters])

    def refund(self, cost: int) -> None:
        for each in self.counters:
            each.refund("k", cost)

    def reset(self) -> None:
        for each in self.counters:
            each.reset("k")

    def hit_many(self, cost: int) -> list[Any]:
        return [self.hit(cost), self.hit(cost)]

    hit_all = hit

    def settle(self, clock: FakeClock, cost: int, later: int, actual: int) -> Any:
        decisions = self._hit(cost)
        if all(decisions):
            clock.advance_ns(later)
            for each, decision in zip(self.counters, decisions, strict=True):
                if actual > cost:
                    each.charge("k", actual - cost)
                elif actual < cost:
                    each.refund("k", cost - actual, decision._mark, actual)
        return speaks(decisions)


def speaks(decisions: list[Any]) -> Any:
    """The refusal with the longest wait, never being the longest; or the least remaining."""
    refused = [each for each in decisions if not each]
    if refused:
        return max(refused, key=lambda each: 2**70 if each._retry < 0 else each._retry)
    return min(decisions, key=lambda each: each.remaining)


def play(game: Any, clock: FakeClock, script: list[tuple[int, str, int, int]]) -> list[Any]:
    answers: list[Any] = []
    for step, verb, cost, other in script:
        clock.advance_ns(step)
        if verb == "reset":
            game.reset()
        elif verb == "refund":
            game.refund(other)
        elif verb == "hit_many":
            answers += [told(decision) for decision in game.hit_many(cost)]
        elif verb == "settle":
            answers.append(told(game.settle(clock, cost, max(0, step) // 2, other)))
        else:
            answers.append(told(getattr(game, verb)(cost)))
    return answers


@st.composite
def scripts(draw: st.DrawFn) -> tuple[list[str], list[tuple[int, str, int, int]]]:
    # A reservation of a limit with a lockout has a second row: see test_undecided.py.
    found = st.one_of(
        limits(plain=True),
        limits(plain=True),
        st.sampled_from(
            [Limit(0, "minute"), Limit(5, "10s", initial=2), Limit(2, "1s", initial=0)]
        ),
    )
    some = draw(st.lists(found, min_size=2, max_size=4, unique_by=lambda limit: limit.counted_as))
    step = st.one_of(*[steps(limit) for limit in some])
    cost = st.one_of(*[costs(limit) for limit in some if limit.amount])
    one = st.tuples(step, st.sampled_from(VERBS), cost, st.integers(1, 30))
    return [str(limit) for limit in some], draw(st.lists(one, min_size=1, max_size=30))


@given(scripts())
@settings(max_examples=3 * settings().max_examples)
def test_a_text_of_several_is_the_account_of_each_kept_by_hand(case: Any) -> None:
    texts, script = case
    clock = FakeClock(10**18)
    expected = play(ByHand(penstock.MemoryStore(clock=clock), texts), clock, script)
    clock.set(10**18)
    store = penstock.MemoryStore(clock=clock)
    assert play(Combined(penstock, store, texts), clock, script) == expected
    clock.set(10**18)
    pure = PURE.MemoryStore(clock=clock)
    assert play(Combined(PURE, pure, texts), clock, script) == expected
    clock.set(10**18)
    with tempfile.TemporaryDirectory() as folder:
        shared = penstock.SharedMemoryStore(Path(folder) / "s", clock=clock, **ROOM)
        assert play(Combined(penstock, shared, texts), clock, script) == expected
        shared.close()


@given(scripts())
def test_a_text_of_several_reads_back(case: Any) -> None:
    texts, _ = case
    for separator in (";", ",", "|", " ; "):
        assert [str(limit) for limit in limits_of(separator.join(texts))] == texts


@given(limits(), st.lists(st.tuples(st.integers(0, 10**10), st.integers(1, 9)), max_size=9))
def test_a_limit_of_0_refuses_whatever_else_it_says(like: Limit, script: Any) -> None:
    closed = like.changed(amount=0, burst=None, initial=None, debt=None, soft=None)
    assert Limit.parse(str(closed)) == closed
    clock = FakeClock(10**18)
    for library in (penstock, PURE):
        store = library.MemoryStore(clock=clock)
        limiter = library.Limiter(str(closed), store=store)
        for step, cost in script:
            clock.advance_ns(step)
            for decision in (
                limiter.hit("k", cost=cost),
                limiter.peek("k", cost=cost),
                limiter.wait("k", cost=cost),
                limiter.wait("k", cost=cost, timeout=0),
                limiter.reserve("k", cost=cost).decision,
                limiter.hit_all([("k", None, cost), ("k", "1000000/second", 1)]),
            ):
                assert not decision
                assert decision.limit.amount == 0
                assert (decision.remaining, decision.retry_after) == (0, None)
            limiter.refund("k", cost)
        assert store.keys == 0
