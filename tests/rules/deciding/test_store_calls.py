"""What a check has taken, and gives back if it is interrupted."""

from __future__ import annotations

import pytest

from penstock import Limit, MemoryStore
from penstock.rules.deciding.store_calls import Taken, Work, do_work
from penstock.testing import FakeClock


@pytest.mark.parametrize(
    "refunded",
    [
        None,  # all of it is given back
        2,  # a part was given back on the way: only the rest is
        5,
    ],
)
def test_what_was_refunded_on_the_way_is_not_given_back_again(
    refunded: int | None,
) -> None:
    store = MemoryStore(clock=FakeClock())
    counters, taken = store.counters(Limit(10, "hour")), Taken()
    counters.hit("k", 3)  # somebody else's, which stays taken
    ((decision,),), _ = do_work(store, Work([[(counters, "k", 5)]]), taken)
    if refunded is not None:
        back = ("refund", counters, ("k", refunded, decision._mark, 5 - refunded))
        do_work(store, Work(calls=[back]), taken)
    taken.give_back()
    assert counters.peek("k", 1).remaining == 7
    taken.give_back()
    assert counters.peek("k", 1).remaining == 7
