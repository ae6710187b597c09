"""The suite that every store must pass: subclass it, make a store, run pytest.

::

    from penstock.testing import StoreConformance

    class TestMyStore(StoreConformance):
        def make_store(self, clock):
            return MyStore(clock=clock)

Each test creates its own store, on a `FakeClock`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.errors import InvalidCost, InvalidKey, LimitExceeded
from penstock.limiter import Limiter
from penstock.limits import Limit
from penstock.stores.base import Store
from penstock.testing.clock import FakeClock

# One limit of each algorithm and of each option, all of 5 a minute.
LIMITS = [
    "5/minute",
    "5/minute burst 8",
    "5/minute debt 3",
    "5/minute leaky_bucket",
    "5/minute fixed_window",
    "5/minute fixed_window align first_hit",
    "5/minute fixed_window tz Asia/Taipei",
    "5/minute sliding_window",
    "5/minute sliding_window rounding up",
    "5/minute sliding_window cells 1",
    "5/minute sliding_window cells 1 rounding up",
    "5/minute sliding_log",
    "5/minute sliding_log count_rejected",
    "5/minute lockout 15m",
    "5/minute sliding_log lockout 15m",
    "5/minute soft 2 for 10m",
    "5/minute fixed_window soft 2 for 10m lockout 1h",
]


class StoreConformance:
    """What a `Store` promises."""

    limits = LIMITS

    def make_store(self, clock: FakeClock) -> Store:
        """A new, empty store on ``clock``."""
        raise NotImplementedError

    def limiter(self, text: str) -> tuple[Limiter, FakeClock]:
        """A limiter with a new store, and the store's clock."""
        clock = FakeClock()
        return Limiter(text, store=self.make_store(clock), enabled=True), clock

    def test_takes_up_to_the_burst_and_refuses_the_next(self) -> None:
        for text in self.limits:
            limiter, _ = self.limiter(text)
            most = _at_once(Limit.parse(text))
            taken = [bool(limiter.hit("k")) for _ in range(most + 1)]
            assert taken == [True] * most + [False], text

    def test_counts_down_and_names_the_last(self) -> None:
        limiter, _ = self.limiter("3/minute")
        seen = [limiter.hit("k") for _ in range(4)]
        assert [d.remaining for d in seen] == [2, 1, 0, 0]
        assert [d.last for d in seen] == [False, False, True, False]
        assert [d.limit for d in seen] == [Limit(3, "minute")] * 4

    def test_is_allowed_at_retry_after_and_not_a_nanosecond_before(self) -> None:
        for text in self.limits:
            for cost in (1, 2, 5):
                limiter, clock = self.limiter(text)
                while limiter.hit("k"):
                    clock.advance(0.7)
                refused = limiter.hit("k", cost=cost)
                assert not refused
                assert refused.retry_after is not None
                clock.advance_ns(round(refused.retry_after * 1e9) - 1)
                assert not limiter.peek("k", cost=cost), (text, cost)
                clock.advance_ns(1)
                assert limiter.hit("k", cost=cost), (text, cost)

    def test_a_cost_above_the_burst_is_never_allowed_and_takes_nothing(self) -> None:
        for text in self.limits:
            limiter, _ = self.limiter(text)
            before = limiter.peek("k").remaining
            for cost in (1_000, 2**80):
                refused = limiter.hit("k", cost=cost)
                assert not refused.allowed
                assert refused.retry_after is None, text
            assert limiter.peek("k").remaining == before

    def test_peek_changes_nothing(self) -> None:
        for text in self.limits:
            limiter, clock = self.limiter(text)
            for _ in range(12):
                before = limiter.peek("k")
                assert repr(limiter.peek("k")) == repr(before)
                assert limiter.hit("k").allowed == before.allowed
                clock.advance(3.3)

    def test_an_attempt_takes_like_a_hit_and_violates_nothing(self) -> None:
        for text in self.limits:
            limiter, _ = self.limiter(text)
            counters = limiter.counters(None)
            most = _at_once(counters.limit)
            taken = [bool(counters.attempt("k", 1)) for _ in range(most)]
            assert taken == [True] * most, text
            before = repr(limiter.peek("k"))
            for cost in (1, 2, 1_000):
                assert not counters.attempt("k", cost), text
            assert repr(limiter.peek("k")) == before, text
            assert not limiter.store.hit_each([(counters, "k", 1)], attempt=True)[0]
            assert repr(limiter.peek("k")) == before, text

    def test_an_attempt_takes_no_place_that_it_has_no_patience_for(self) -> None:
        limiter, _ = self.limiter("5/minute leaky_bucket")
        counters = limiter.counters(None)
        assert counters.attempt("k", 2, 0)
        before = repr(limiter.peek("k"))
        refused = counters.attempt("k", 1, 23_999_999_000)
        assert (refused.allowed, refused.retry_after) == (False, 1e-6)
        assert repr(limiter.peek("k")) == before
        assert counters.attempt("k", 1, 24_000_000_000).delay == 24.0

    def test_releasing_a_limit_loses_nothing(self) -> None:
        for text in self.limits:
            limit, clock = Limit.parse(text), FakeClock()
            store = self.make_store(clock)
            before = Limiter(limit, store=store, enabled=True).hit("k")
            released = store.release(limit)
            after = Limiter(limit, store=store, enabled=True).peek("k")
            assert after.remaining == before.remaining, (text, released)

    def test_is_as_new_after_reset_after(self) -> None:
        for text in self.limits:
            limiter, clock = self.limiter(text)
            fresh = limiter.peek("k").remaining
            for _ in range(9):
                decision = limiter.hit("k")
            clock.advance_ns(round(decision.reset_after * 1e9))
            assert limiter.peek("k").remaining == fresh, text

    def test_refund_gives_back_and_never_more_than_full(self) -> None:
        for text in self.limits:
            limiter, _ = self.limiter(text)
            fresh = limiter.peek("k").remaining
            limiter.hit("k", cost=4)
            limiter.refund("k", 3)
            assert limiter.peek("k").remaining == fresh - 1, text
            limiter.refund("k", 50)
            limiter.refund("k", 2**70)
            limiter.refund("never seen", 1)
            assert limiter.peek("k").remaining == fresh, text

    def test_reset_forgets(self) -> None:
        for text in self.limits:
            limiter, _ = self.limiter(text)
            while limiter.hit("k"):
                pass
            limiter.hit("other", cost=2)
            left = limiter.peek("other").remaining
            limiter.reset("k")
            limiter.reset("never seen")
            assert limiter.hit("k"), text
            assert limiter.peek("other").remaining == left

    def test_hit_up_to_takes_all_that_is_there_and_no_more(self) -> None:
        for text in self.limits:
            if "debt" in text or "soft" in text:  # which let more pass than remains
                continue
            limiter, _ = self.limiter(text)
            for most in (2, 3, 100):
                before = limiter.peek("k").remaining
                result = limiter.hit_up_to("k", most)
                assert result.taken == min(most, before), text
                assert limiter.peek("k").remaining == before - result.taken, text
            assert not limiter.hit_up_to("k", 2), text
            limiter.reset("k")
            assert limiter.hit("k"), text

    def test_a_charge_takes_although_it_does_not_fit(self) -> None:
        for text in self.limits:
            limiter, clock = self.limiter(text)
            full = limiter.peek("k").remaining
            assert limiter.charge("k", 2).remaining == full - 2, text
            decision = limiter.charge("k", full + 2)
            assert decision.remaining == 0, text
            assert repr(limiter.peek("k")) == repr(decision), text
            if not decision:
                assert decision.retry_after is not None
                clock.advance_ns(round(decision.retry_after * 1e9))
                assert limiter.hit("k"), text

    def test_a_name_keeps_counts_apart(self) -> None:
        for text in self.limits:
            limiter, _ = self.limiter(text)
            named = Limiter(text, store=limiter.store, name="search", enabled=True)
            while named.hit("k"):
                pass
            assert limiter.hit("k"), text
            assert not Limiter(text, store=limiter.store, name="search", enabled=True).hit("k"), (
                text
            )
            assert Limiter(text, store=limiter.store, name="export", enabled=True).hit("k"), text

    def test_keys_and_limits_do_not_touch_each_other(self) -> None:
        limiter, _ = self.limiter("2/minute")
        other = Limit(3, "minute")
        assert [bool(limiter.hit("a")) for _ in range(3)] == [True, True, False]
        assert [bool(limiter.hit("b")) for _ in range(3)] == [True, True, False]
        assert [bool(limiter.hit("a", other)) for _ in range(4)] == [True, True, True, False]
        assert limiter.hit("a", "3/minute").remaining == 0

    def test_limits_that_differ_in_rounding_have_their_own_counters(self) -> None:
        limiter, _ = self.limiter("2/minute sliding_window")
        assert limiter.hit("a", cost=2)
        assert limiter.hit("a", "2/minute sliding_window rounding up").remaining == 1
        assert limiter.peek("a", "2/minute sliding_window rounding down").remaining == 0

    def test_a_sliding_window_rounds_as_its_limit_says(self) -> None:
        for rounding, allowed in (("down", True), ("up", False)):
            limiter, clock = self.limiter(f"7/minute sliding_window cells 1 rounding {rounding}")
            limiter.hit("k", cost=5)
            clock.advance(60)
            limiter.hit("k", cost=2)
            clock.advance(18)
            assert limiter.hit("k")  # 3 + 5 * 0.7 = 6.5 of 7
            assert limiter.hit("k").allowed == allowed

    def test_keys_are_any_non_empty_text(self) -> None:
        limiter, _ = self.limiter("1/minute")
        keys = ["a", "a ", "A", "a:b", "a\0b", "{a}", "日本", "\U0001f6b0", "\ud800", "x" * 10_000]
        assert all(limiter.hit(key) for key in keys)
        assert not any(limiter.hit(key) for key in keys)

    def test_bad_keys_and_costs_are_errors(self) -> None:
        limiter, _ = self.limiter("1/minute")
        for key in ("", b"a", 7, None, ("a",)):
            for verb in (limiter.hit, limiter.peek, limiter.reset, limiter.refund):
                _raises(InvalidKey, verb, key)
        for cost in (0, -1, 1.0, "1", None, True):
            for verb in (limiter.hit, limiter.peek):
                _raises(InvalidCost, partial(verb, cost=cost), "k")  # type: ignore[arg-type]

    def test_hit_all_takes_all_or_nothing(self) -> None:
        limiter, _ = self.limiter("5/minute")
        small, large = Limit(1, "hour"), Limit(10, "hour")
        assert limiter.hit_all([("u", large), ("ip", small)]).remaining == 0
        refused = limiter.hit_all([("u", large, 3), ("ip", small)])
        assert not refused
        assert refused.limit == small
        assert limiter.peek("u", large).remaining == 9

    def test_hit_each_says_what_each_of_them_would(self) -> None:
        limiter, _ = self.limiter("5/minute")
        store = limiter.store
        small, large = (store.counters(limit) for limit in (Limit(1, "hour"), Limit(10, "hour")))
        wanted = [(large, "u", 4), (small, "ip", 1), (large, "v", 1)]
        passed = store.hit_each(wanted)
        assert [(d.allowed, d.remaining) for d in passed] == [(True, 6), (True, 0), (True, 9)]
        refused = store.hit_each(wanted)
        assert [(d.allowed, d.remaining) for d in refused] == [(True, 6), (False, 0), (True, 9)]
        assert [d.limit for d in refused] == [large.limit, small.limit, large.limit]

    def test_hit_all_adds_the_costs_of_a_key_that_is_named_twice(self) -> None:
        limiter, _ = self.limiter("5/minute")
        assert not limiter.hit_all([("u", None, 3), ("u", None, 3)])
        assert limiter.hit_all([("u", None, 3), ("u", "5/minute", 2)]).remaining == 0

    def test_hit_many_decides_on_each_in_order(self) -> None:
        limiter, _ = self.limiter("2/minute")
        keys = ["a", "b", "a", "a", "b", "c"]
        assert [bool(d) for d in limiter.hit_many(keys)] == [True, True, True, False, True, True]

    def test_settling_charges_and_gives_back(self) -> None:
        limiter, _ = self.limiter("100/minute")
        with limiter.reserve("k", cost=40) as reservation:
            reservation.settle(10)
        assert limiter.peek("k").remaining == 90
        limiter.reserve("k", cost=40).settle(60)
        assert limiter.peek("k").remaining == 30
        limiter.reserve("k", cost=10).settle(70)
        assert limiter.peek("k").remaining == 0

    def test_a_bucket_reserves_for_later(self) -> None:
        limiter, clock = self.limiter("60/minute burst 3")
        several = [limiter.reserve("k", cost=2, max_delay="3s") for _ in range(4)]
        assert [bool(each) for each in several] == [True, True, True, False]
        assert [each.delay for each in several[:3]] == [0.0, 1.0, 3.0]
        assert several[3].decision.retry_after == 2.0
        assert limiter.hit("k").retry_after == 4.0
        several[1].cancel()  # the third has been promised its time
        assert limiter.hit("k").retry_after == 4.0
        several[2].cancel()
        assert limiter.hit("k").retry_after == 2.0
        clock.advance(1.0)
        again = limiter.reserve("k", cost=2, max_delay=2)
        assert again.delay == 2.0
        clock.advance(2.0)
        again.settle(1)
        assert limiter.peek("k").remaining == 1
        assert not limiter.reserve("k", cost=4, max_delay="1h")

    def test_a_leaky_bucket_reserves_places(self) -> None:
        limiter, _ = self.limiter("60/minute leaky_bucket burst 3")
        several = [limiter.reserve("k") for _ in range(4)]
        assert [each.delay for each in several[:3]] == [0.0, 1.0, 2.0]
        assert not several[3]
        # It has no turn to wait for.
        _raises(LimitExceeded, lambda _: several[3].delay, "k")
        several[1].cancel()  # the third has been promised its time
        assert not limiter.reserve("k")
        several[2].cancel()
        refused = limiter.reserve("k", max_delay=1.5)
        assert (bool(refused), refused.decision.retry_after) == (False, 0.5)
        assert limiter.reserve("k", max_delay=2).delay == 2.0

    def test_a_clock_that_steps_back_grants_nothing_and_heals(self) -> None:
        for text in self.limits:
            limiter, clock = self.limiter(text)
            clock.advance(100_000)
            while limiter.hit("k"):
                pass
            clock.advance(-50_000)
            refused = limiter.hit("k")
            assert not refused, text
            assert refused.retry_after is not None
            assert refused.retry_after <= 2 * 3600, text
            clock.advance_ns(round(refused.retry_after * 1e9))
            assert limiter.hit("k"), text

    def test_threads_together_get_exactly_what_there_is(self) -> None:
        limiter, _ = self.limiter("1000/hour")
        taken = []

        def work() -> None:
            taken.append(sum(bool(limiter.hit("k")) for _ in range(200)))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(taken) == 1000


def _at_once(limit: Limit) -> int:
    """How many hits of 1 a new key may have at one moment."""
    return limit.burst + (limit.soft.overrun if limit.soft is not None else 0)


def _raises(kind: type[Exception], verb: Callable[[Any], object], key: object) -> None:
    try:
        verb(key)
    except kind:
        return
    raise AssertionError(f"{key!r} was accepted")
