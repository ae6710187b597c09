"""An account, step by step: when, what is asked, and what is assigned."""

from __future__ import annotations

import pytest

from penstock.limits import Limit
from penstock.service.rlqs import shares
from penstock.service.rlqs.account import (
    ASSIGNED,
    CONFIRM,
    CONFLICT,
    LEAVE,
    LOOK,
    RELEASE,
    REPORT,
    UNCHANGED,
    Account,
    Reply,
    Request,
)
from penstock.service.rlqs.shares import SLACK, TTL, Terms

TERMS = shares.terms_of([Limit.parse("100/second")])


class Asking:
    """An account that Envoys ask over streams of their own, all of which arrives at once."""

    def __init__(self, terms: Terms = TERMS, now: int = 1_000_000) -> None:
        self.terms, self.now = terms, now
        self.account = Account(terms)
        self.replies: dict[str, Reply] = {}

    def ask(
        self, kind: int, node: str, requests: int = 0, *, stream: str = "", proven: bool = False,
        new_stream: bool = False,
    ) -> Reply:  # fmt: skip
        last = self.replies.get(node)
        sent = 0 if last is None or new_stream else last.number
        burst, rate = (0, 0) if last is None or new_stream else (last.burst, last.rate)
        request = Request(
            kind, node, stream or f"of {node}", requests, sent, sent if proven else 0, burst, rate
        )
        reply = self.account.settle(request, self.terms, self.now)
        if reply.status == ASSIGNED:
            self.replies[node] = reply
        return reply

    def confirm(self, node: str) -> Reply:
        return self.ask(CONFIRM, node, proven=True)


def test_terms_of_limits() -> None:
    def terms(*limits: str, cost: int = 1) -> Terms:
        return shares.terms_of([Limit.parse(limit) for limit in limits], cost)

    assert terms("100/second") == Terms(10_000, 100, 100)
    assert terms("10/second burst 3") == Terms(10_000, 3, 1_000)
    assert terms("1/hour") == Terms(2_777, 1, 10_000_000)
    assert terms("10000000/second") == Terms(1_000_000_000, 10_000_000, 100)
    assert terms("100/second", "1000/minute burst 30") == Terms(16_666, 30, 1_000)
    assert terms("100/second", cost=10) == Terms(10_000, 10, 1_000)


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("100/second", None),
        ("100/second leaky_bucket", None),
        ("100/second fixed_window", "fixed_window cannot be divided"),
        ("100/second sliding_window", "sliding_window cannot be divided"),
        ("100/second debt 5", "debt has no meaning"),
        ("1000000000/year burst 1000000000", None),
    ],
)
def test_which_limits_can_be_divided(limit: str, why: str | None) -> None:
    problem = shares.undividable(Limit.parse(limit))
    assert problem is None if why is None else why in str(problem)


def test_the_first_envoy_gets_all() -> None:
    asking = Asking()
    reply = asking.ask(REPORT, "a", 1)
    assert (reply.status, reply.burst, reply.rate) == (ASSIGNED, 100, 10_000)
    assert reply.free == 0


def test_a_second_gets_nothing_before_a_decrease_has_arrived() -> None:
    asking = Asking()
    asking.ask(REPORT, "a", 1)
    asking.now += 5_000
    asking.ask(REPORT, "a", 1_000, proven=True)
    second = asking.ask(REPORT, "b", 1)
    assert (second.status, second.burst, second.rate) == (ASSIGNED, 0, 0)
    decrease = asking.ask(LOOK, "a")
    assert (decrease.status, decrease.rate) == (ASSIGNED, 9_500)
    asking.now += 50
    assert asking.ask(LOOK, "b").status == UNCHANGED  # not proven
    asking.confirm("a")
    look = asking.ask(LOOK, "b")
    assert look.status == UNCHANGED  # there is a rate for it, but no burst yet
    assert 0 < look.wait <= 200
    asking.now += look.wait
    look = asking.ask(LOOK, "b")
    assert (look.status, look.burst, look.rate) == (ASSIGNED, 1, 500)


def test_a_decrease_that_is_never_proven_is_free_after_it_has_expired() -> None:
    asking = Asking()
    asking.ask(REPORT, "a", 1)
    asking.ask(REPORT, "b", 1)
    end = asking.now + TTL + SLACK
    asking.now += 2_000
    assert asking.ask(LOOK, "a").rate == 5_000
    for _ in range(3):
        asking.now += 5_000
        asking.ask(REPORT, "a", 0)
        assert asking.ask(REPORT, "b", 0).rate == 0
    asking.now = end
    asking.ask(REPORT, "b", 0)
    asking.now += 1_000
    assert asking.ask(REPORT, "b", 0).rate > 0


def test_a_renewal_is_free_and_a_new_start_costs_the_burst() -> None:
    asking = Asking()
    asking.ask(REPORT, "a", 1)
    for _ in range(5):
        asking.now += 5_000
        reply = asking.ask(REPORT, "a", 1_000)
        assert (reply.burst, reply.rate, reply.free) == (100, 10_000, 0)
    asking.now += TTL - SLACK + 1  # it may expire before this arrives: a full bucket
    reply = asking.ask(REPORT, "a", 1_000)
    assert (reply.burst, reply.rate) == (0, 0)
    asking.confirm("a")
    asking.now += 200
    reply = asking.ask(LOOK, "a")
    assert (reply.burst, reply.rate) == (20, 10_000)


def test_a_larger_burst_costs_the_difference() -> None:
    asking = Asking()
    asking.ask(REPORT, "a", 1)
    asking.now += 5_000
    asking.ask(REPORT, "a", 1, proven=True)
    asking.ask(REPORT, "b", 1)
    asking.ask(LOOK, "a")
    asking.confirm("a")
    asking.now += 1_000
    burst, free = asking.ask(LOOK, "b").burst, asking.account.free
    for _ in range(10):
        asking.now += 2_000
        before = asking.account.free + 2_000 * (TERMS.rate - asking.account._rate_out())
        reply = asking.ask(REPORT, "b", 1)
        grown = reply.burst - burst
        assert asking.account.free <= before - grown * TERMS.unit
        burst, free = reply.burst, asking.account.free
        asking.ask(REPORT, "a", 1, proven=True)
    assert burst > 40
    assert free >= 0


def test_a_larger_burst_is_paid_by_what_is_free() -> None:
    asking = Asking()
    asking.ask(REPORT, "a", 1)
    asking.terms = shares.terms_of([Limit.parse("200/second")])
    asking.ask(CONFIRM, "a", proven=True)
    asking.now += 500  # half a second of the 100/second that nobody has
    reply = asking.ask(REPORT, "a", 100)
    assert (reply.burst, reply.free) == (150, 0)


def test_an_envoy_comes_back_and_has_what_it_had() -> None:
    asking = Asking()
    asking.ask(REPORT, "a", 1)
    asking.confirm("a")
    asking.ask(LEAVE, "a")
    asking.now += 5_000
    reply = asking.ask(REPORT, "a", 1_000, stream="another", new_stream=True)
    assert (reply.status, reply.burst, reply.rate) == (ASSIGNED, 100, 10_000)


def test_two_envoys_of_one_name_do_not_share_an_assignment() -> None:
    asking = Asking()
    asking.ask(REPORT, "a", 1)
    asking.now += 1_000
    reply = asking.ask(REPORT, "a", 1, stream="another", new_stream=True)
    assert reply.status == CONFLICT


def test_what_is_released_is_free_when_that_is_proven() -> None:
    asking = Asking()
    asking.ask(REPORT, "a", 1)
    asking.ask(RELEASE, "a")
    assert asking.ask(REPORT, "b", 1).rate == 0
    asking.confirm("a")
    assert list(asking.account.holders) == ["b"]
    asking.now += 500
    assert asking.ask(LOOK, "b").rate > 9_000


def test_a_bank_that_forgot_believes_what_streams_have_sent() -> None:
    asking = Asking()
    asking.ask(REPORT, "a", 1)
    asking.account = Account(TERMS)
    asking.now += 5_000
    asking.ask(REPORT, "b", 1)
    reply = asking.ask(REPORT, "a", 500)
    assert reply.rate_out > 10_000  # too much is out, for as long as it takes to tell them
    for _ in range(4):
        for node in "ab":
            asking.ask(REPORT, node, 100)
            asking.confirm(node)
        asking.now += 5_000
    assert asking.ask(REPORT, "a", 500).rate_out <= 10_000


def test_a_lower_limit_takes_effect_as_decreases_arrive() -> None:
    asking = Asking()
    asking.ask(REPORT, "a", 1)
    asking.now += 1_000
    asking.terms = shares.terms_of([Limit.parse("10/second")])
    reply = asking.ask(LOOK, "a")
    assert (reply.burst, reply.rate, reply.status) == (10, 10_000, ASSIGNED)
    assert reply.burst_out == 100
    asking.confirm("a")
    reply = asking.ask(REPORT, "a", 1)
    assert (reply.rate_out, reply.burst_out) == (10_000, 10)


def test_a_change_of_the_interval_alone_is_not_sent() -> None:
    """Envoy would not notice it: 10,000 per 100 s are 10,000 per 1,000 s to it."""
    asking = Asking(Terms(10_000, 5, 100))
    asking.ask(REPORT, "a", 1)
    asking.terms = Terms(10_000, 5, 1_000)
    reply = asking.ask(LOOK, "a")
    assert reply.rate == 9_999
    asking.now += 5_000
    assert asking.ask(REPORT, "a", 1).rate in (9_999, 10_000)


def test_a_clock_that_is_set_back_keeps_nothing_longer_than_an_assignment_lives() -> None:
    asking = Asking()
    asking.ask(REPORT, "a", 1)
    asking.now -= 500_000
    asking.ask(REPORT, "b", 1)
    asking.now += TTL + SLACK
    assert list(asking.account.holders) == ["a", "b"]
    reply = asking.ask(REPORT, "b", 1)
    assert (reply.nodes, reply.rate_out) == (1, 0)


@pytest.mark.parametrize("demands", [(100, 100), (160, 40), (30, 20), (0, 0), (1000, 0, 10)])
def test_shares(demands: tuple[float, ...]) -> None:
    reach, total, nodes = 100.0, float(sum(demands)), len(demands)
    parts = [shares.share(reach, demand, total, nodes) for demand in demands]
    assert sum(parts) == pytest.approx(100)
    for demand, part in zip(demands, parts, strict=True):
        if total <= reach:
            assert part >= demand
        else:
            assert part >= 0.1 * reach / nodes
